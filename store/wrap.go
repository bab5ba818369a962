package store

// Wrapper is implemented by a Store that passes calls on to another one.
type Wrapper interface{ Unwrap() Store }

// As returns the first store that is a T, of s, the one that s wraps, and so on. It is for what concerns the whole
// store and no queue.
func As[T any](s Store) (t T, ok bool) {
	for {
		if t, ok = s.(T); ok {
			return t, true
		}
		w, wraps := s.(Wrapper)
		if !wraps {
			return t, false
		}
		s = w.Unwrap()
	}
}
