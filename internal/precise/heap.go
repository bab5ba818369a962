package precise

import "container/heap"

// timerHeap holds running timers, the first one in front.
type timerHeap []*Timer

func (h *timerHeap) add(t *Timer) { heap.Push(h, t) }

func (h *timerHeap) remove(t *Timer) { heap.Remove(h, t.place) }

// Len, Less, Swap, Push and Pop are for package heap.

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool { return h[i].at < h[j].at }

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *timerHeap) Push(x any) {
	t := x.(*Timer)
	t.place = len(*h)
	*h = append(*h, t)
}

func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.place = absent
	return t
}
