package diskstore

import (
	"context"

	"github.com/laterq/later/store"
)

// Each property has a key of its own, so that a change writes nothing else. Properties are read when they are needed
// and not counted, since a queue has few.

// SetProperties implements store.Store.
func (s *Store) SetProperties(
	ctx context.Context, name string, set map[string]string, condition *store.Condition,
) error {
	if err := store.CheckProperties(set); err != nil {
		return err
	}
	return s.changeIf(ctx, name, func(t *tx, q *queue) (bool, error) {
		met, err := t.meets(q, condition)
		if err != nil || !met {
			return false, err
		}
		return true, t.setProperties(q, set)
	})
}

// setProperties sets properties of a queue, which is created if it does not exist and one is set. The caller has
// flushed.
func (t *tx) setProperties(q *queue, set map[string]string) (err error) {
	after, sets := map[string]bool{}, false
	for name := range t.keys(&err, q.number, kindProperty, "") {
		after[name] = true
	}
	if err != nil {
		return err
	}
	for name, value := range set {
		if value == "" {
			delete(after, name)
			continue
		}
		after[name], sets = true, true
	}
	if err := store.CheckPropertyCount(len(after)); err != nil {
		return err
	}
	if sets {
		if q, err = t.create(q.name); err != nil {
			return err
		}
	}
	if q.number == 0 {
		return nil // nothing to remove
	}
	for name, value := range set {
		key := appendIDKey(t.key[:0], q.number, kindProperty, name)
		if value == "" {
			t.remove(key)
			continue
		}
		t.value = append(t.value[:0], value...)
		t.set(key, t.value)
	}
	return nil
}

// Properties implements store.Store.
func (s *Store) Properties(ctx context.Context, name string) (map[string]string, error) {
	return read(ctx, s, name, nil, func(v *view) (_ map[string]string, err error) {
		all := map[string]string{}
		for name, value := range v.keys(&err, v.number, kindProperty, "") {
			all[name] = string(value)
		}
		return all, err
	})
}

// meets reports whether a condition on a queue is met. None always is.
func (t *tx) meets(q *queue, c *store.Condition) (bool, error) {
	if c == nil {
		return true, nil
	}
	if q.number == 0 {
		return c.Value == "", nil
	}
	if err := t.flush(); err != nil {
		return false, err
	}
	value, _, err := t.get(appendIDKey(t.key[:0], q.number, kindProperty, c.Property))
	return string(value) == c.Value, err
}
