package lock

import (
	"sync"
	"time"

	"github.com/laterq/later"
)

// turns has the locks that the handlers of a process hold and wait for. It spares calls to the locker: of the messages
// of one key, one holds or asks for the lock and one waits.
type turns struct {
	mu      sync.Mutex
	keys    map[string]*turn
	waiting int // messages that wait in handlers
	since   map[messageID]time.Time
	swept   time.Time
}

type messageID struct{ queue, id string }

// turn is the state of a key that is in use.
type turn struct {
	held    bool          // by a handler of this process, or being asked for
	waiting bool          // a handler of this process waits
	freed   chan struct{} // has a value when held ends while a handler waits
	usual   time.Duration // about how long handlers hold the lock
	next    time.Time     // when the next snoozed message returns
}

// forgetAfter is how long a message that waited and did not return is remembered.
const forgetAfter = time.Hour

func newTurns() *turns {
	return &turns{keys: map[string]*turn{}, since: map[messageID]time.Time{}}
}

func (t *turns) of(key string) *turn {
	k := t.keys[key]
	if k == nil {
		k = &turn{freed: make(chan struct{}, 1)}
		t.keys[key] = k
	}
	return k
}

// drop forgets a key that is not in use.
func (t *turns) drop(key string, k *turn) {
	if !k.held && !k.waiting && !time.Now().Before(k.next) {
		delete(t.keys, key)
	}
}

// begin reports whether no other handler of this process has the key, and takes it.
func (t *turns) begin(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.of(key)
	if k.held {
		return false
	}
	k.held = true
	return true
}

// end releases the key. held is how long its lock was held, or 0 if it was not.
func (t *turns) end(key string, held time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.of(key)
	k.held = false
	if held > 0 {
		if k.usual == 0 {
			k.usual = held
		}
		k.usual += (held - k.usual) / 8
		if k.waiting {
			select {
			case k.freed <- struct{}{}:
			default:
			}
		}
	}
	t.drop(key, k)
}

// wait reports whether a message may wait for the key in a handler. At most most handlers wait, for any key.
func (t *turns) wait(key string, most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.of(key)
	if k.waiting || t.waiting >= most {
		return false
	}
	k.waiting = true
	t.waiting++
	return true
}

func (t *turns) stopWaiting(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.of(key)
	k.waiting = false
	t.waiting--
	t.drop(key, k)
}

// freed returns a channel that has a value when a handler of this process has released the key.
func (t *turns) freed(key string) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of(key).freed
}

// delay returns how long to snooze a message of the key: each one for a turn longer than the last.
func (t *turns) delay(key string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, now := t.of(key), time.Now()
	if k.next.Before(now) {
		k.next = now
	}
	k.next = k.next.Add(max(k.usual, minDelay))
	if latest := now.Add(maxDelay); k.next.After(latest) {
		k.next = latest
	}
	return k.next.Sub(now)
}

// waitsSince returns when this process first found the lock of a message held.
func (t *turns) waitsSince(m *later.Message) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	id := messageID{m.Queue, m.ID}
	since, ok := t.since[id]
	if !ok {
		since = now
		t.since[id] = now
	}
	if now.Sub(t.swept) > forgetAfter {
		t.swept = now
		for id, at := range t.since {
			if now.Sub(at) > 24*forgetAfter {
				delete(t.since, id)
			}
		}
		for key, k := range t.keys {
			t.drop(key, k)
		}
	}
	return since
}

// forget is called when a message no longer waits.
func (t *turns) forget(m *later.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.since, messageID{m.Queue, m.ID})
}
