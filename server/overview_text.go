package server

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
)

// maxGone is how many names of queues that are gone an overviewText remembers.
const maxGone = 1000

// overviewText has the events of an overview that is read again and again. An event is the whole overview, or the
// changes since an earlier reading. The zero value has none.
type overviewText struct {
	reading int       // the number of the last reading, 0 before the first one
	last    *Overview // its Queues and Runs are in queues and runs
	queues  []queueText
	runs    changedText
	gone    map[string]int // the readings since which queues are gone
	oldest  int            // gone has all since this reading; earlier ones were forgotten
	moved   int            // the last reading with a queue or a run that differed
	whole   []byte         // the event with the whole overview, nil until it is needed
	step    []byte         // the event with the changes since the reading before, nil until it is needed
}

// changedText is JSON, and the number of the reading that brought it.
type changedText struct {
	text    json.RawMessage
	reading int
}

// set sets the text of a reading, and reports whether it differs. It keeps a text that is the same.
func (c *changedText) set(text []byte, reading int) (changed bool) {
	if changed = !bytes.Equal(c.text, text); changed {
		*c = changedText{text, reading}
	}
	return changed
}

type queueText struct {
	name string
	changedText
}

// textOf returns a value as JSON.
func textOf(value any) []byte {
	var text bytes.Buffer
	_ = encodeJSON(&text, value) // numbers and texts can always be encoded
	return bytes.TrimSuffix(text.Bytes(), []byte("\n"))
}

// set adds the next reading.
func (t *overviewText) set(o *Overview) {
	t.reading++
	if t.last != nil && t.last.QueuesRead > 0 {
		t.moved = t.reading
	}
	t.whole, t.step, t.last = nil, nil, o
	if t.runs.set(textOf(o.Runs), t.reading) {
		t.moved = t.reading
	}
	before := t.queues
	t.queues = make([]queueText, len(o.Queues))
	for i := range o.Queues {
		name := o.Queues[i].Queue
		for len(before) > 0 && before[0].name < name {
			t.lose(before[0].name)
			before = before[1:]
		}
		t.queues[i].name = name
		if len(before) > 0 && before[0].name == name {
			t.queues[i], before = before[0], before[1:]
		}
		if t.queues[i].set(textOf(&o.Queues[i]), t.reading) {
			t.moved = t.reading
		}
	}
	for _, q := range before {
		t.lose(q.name)
	}
}

func (t *overviewText) lose(queue string) {
	t.moved = t.reading
	switch {
	case t.gone == nil:
		t.gone = map[string]int{}
	case len(t.gone) >= maxGone:
		t.gone, t.oldest = map[string]int{}, t.reading
	}
	t.gone[queue] = t.reading
}

// shownOverview is an Overview with parts that are JSON already.
type shownOverview struct {
	*Overview
	Queues []json.RawMessage `json:"queues"`
	Runs   json.RawMessage   `json:"runs,omitempty"`
	Gone   []string          `json:"gone,omitempty"`
}

// event returns the event for a client that has seen a reading, 0 for none: the changes since then, or the whole
// overview.
func (t *overviewText) event(seen int) []byte {
	switch {
	case seen == 0 || seen < t.oldest:
		if t.whole == nil {
			t.whole = sseEvent("overview", textOf(t.since(0)))
		}
		return t.whole
	case seen < t.reading-1:
		return sseEvent("changes", textOf(t.since(seen)))
	case t.step == nil:
		t.step = sseEvent("changes", textOf(t.since(seen)))
	}
	return t.step
}

// since returns the changes since a reading, or the whole overview for 0.
func (t *overviewText) since(seen int) *shownOverview {
	o := &shownOverview{Overview: t.last, Queues: []json.RawMessage{}}
	for i := range t.queues {
		if q := &t.queues[i]; q.reading > seen {
			o.Queues = append(o.Queues, q.text)
		}
	}
	if t.runs.reading > seen {
		o.Runs = t.runs.text
	}
	if seen == 0 {
		return o
	}
	listed := func(name string) bool {
		_, found := slices.BinarySearchFunc(t.queues, name, func(q queueText, name string) int {
			return cmp.Compare(q.name, name)
		})
		return found
	}
	for name, reading := range t.gone {
		if reading > seen && !listed(name) {
			o.Gone = append(o.Gone, name)
		}
	}
	slices.Sort(o.Gone)
	return o
}
