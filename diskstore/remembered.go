package diskstore

import "errors"

var errEnough = errors.New("enough for one pass")

// unforgotten is remembered ids of a queue that have something wrong.
type unforgotten struct {
	lost   []entry  // nothing would ever forget them
	broken []string // until when they are remembered cannot be read
}

// remembered calls f with the remembered ids that have no entry at the time until which they are remembered, some
// at a time. An entry without its id is no fault: an id may be remembered anew, until another time.
func (l *queueLook) remembered(f func(u unforgotten) error) error {
	from := appendKey(nil, l.number, kindRemembered)
	for from != nil {
		var u unforgotten
		wanted := map[uint64]entry{}
		begin := from
		from = nil
		err := l.over(begin, appendKey(nil, l.number, kindRemembered+1), func(key, value []byte) error {
			if int64(len(wanted)+len(u.broken)) == l.limit {
				from = append([]byte{}, key...)
				return errEnough
			}
			id := key[prefixLength:]
			if len(value) != timeLength {
				u.broken = append(u.broken, string(id))
				return nil
			}
			e := entry{readTime(value), string(id)}
			wanted[l.hash(id, placing{kind: kindForget, at: e.at})] = e
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
		if len(wanted) > 0 {
			err = l.each(kindForget, func(rest, _ []byte) error {
				if at, id, ok := splitTime(rest); ok {
					delete(wanted, l.hash(id, placing{kind: kindForget, at: at}))
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		for _, e := range wanted {
			u.lost = append(u.lost, e)
		}
		if len(u.lost)+len(u.broken) > 0 {
			if err := f(u); err != nil {
				return err
			}
		}
	}
	return nil
}
