package diskstore

import "github.com/laterq/later/store"

// Sends with a store.Once are remembered like acked ids, under ids that no message has: a zero byte and the key. The
// value has the fingerprint, the due time and the id behind the time until which it counts.
const (
	oncePrefix = "\x00"
	onceID     = timeLength + store.OnceSize + timeLength // where the id begins
)

// sendOnce sends a message with a Once, unless that repeats an earlier send.
func (t *tx) sendOnce(name string, out *store.Outgoing) (store.SendResult, error) {
	q, key := t.s.queue(name), oncePrefix+out.Once.Key
	if q.forget.n > 0 {
		if err := t.flush(); err != nil { // an earlier message of this call may have the key
			return store.SendResult{}, err
		}
		if result, known, err := t.repeats(q, key, out.Once); known || err != nil {
			return result, err
		}
	}
	result, due, err := t.collapse(name, out)
	if err != nil || result.Err != nil || result.Duplicate {
		return result, err
	}
	result.First = &store.FirstSend{ID: out.ID, Due: store.Time(due)}
	until := t.now + store.Millis(store.OnceWindow)
	t.value = append(appendTime(t.value[:0], until), out.Once.Fingerprint...)
	t.value = append(appendTime(t.value, due), out.ID...)
	t.rememberValue(t.s.queue(name), key, until)
	return result, nil
}

// repeats returns the result of a send with a remembered key.
func (t *tx) repeats(q *queue, key string, o *store.Once) (result store.SendResult, known bool, err error) {
	_, err = t.view(appendIDKey(t.key[:0], q.number, kindRemembered, key), func(value []byte) error {
		if len(value) <= onceID || readTime(value) <= t.now {
			return nil
		}
		known = true
		if string(value[timeLength:timeLength+store.OnceSize]) != o.Fingerprint {
			result.Err = store.ErrConflict
			return nil
		}
		result.Duplicate = true
		due := readTime(value[timeLength+store.OnceSize:])
		result.First = &store.FirstSend{ID: string(value[onceID:]), Due: store.Time(due)}
		return nil
	})
	return result, known, err
}

// isRemembered reports whether a key of kindRemembered has such a value.
func isRemembered(id, value []byte) bool {
	if len(id) > 0 && string(id[:1]) == oncePrefix {
		return len(id) == len(oncePrefix)+store.OnceSize && len(value) > onceID
	}
	return len(value) == timeLength
}
