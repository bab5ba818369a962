package diskstore

import (
	"errors"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

func TestUnreadableMessageDiesWithItsBytes(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	send(t, s, "bad", "good")
	err := s.do(t.Context(), "q", urgent, func(tx *tx) {
		q := s.queue("q")
		tx.set(appendIDKey(nil, q.number, kindMessage, "bad"), append(appendTime(nil, tx.now), 0xff, 'x'))
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 10, Lease: time.Minute})
	if err != nil || len(c.Messages) != 1 || len(c.Died) != 1 || len(c.Expired) != 0 {
		t.Fatalf("claim gives %+v, %v, want one message and one that died", c, err)
	}
	infos, err := s.Get(t.Context(), "q", []string{"bad"})
	if err != nil || infos[0].DeadReason != store.DeadUnreadable || string(infos[0].Raw) != "\xffx" ||
		infos[0].LastError != store.UnreadableText {
		t.Errorf("the unreadable message is %+v, %v", infos[0], err)
	}
}

func TestOneUnreadableMessageDoesNotStopItsQueue(t *testing.T) {
	const idKey, bytes = "bad", "abc"
	for name, c := range map[string]struct {
		damage func(tx *tx, q *queue)
		raw    string
		state  store.State // in listings before the claim; none when it is not listed
		byID   bool        // it is found by its id before the claim
		dies   bool
	}{
		"a message that is cut": {
			damage: func(tx *tx, q *queue) { tx.set(appendIDKey(nil, q.number, kindMessage, idKey), []byte(bytes)) },
			raw:    bytes, state: store.StateReady, dies: true,
		},
		"an empty message": {
			damage: func(tx *tx, q *queue) { tx.set(appendIDKey(nil, q.number, kindMessage, idKey), nil) },
			state:  store.StateReady, dies: true,
		},
		"a message that is gone": {
			damage: func(tx *tx, q *queue) { tx.remove(appendIDKey(nil, q.number, kindMessage, idKey)) },
		},
		"a record that is none": {
			damage: func(tx *tx, q *queue) {
				tx.set(appendIDKey(nil, q.number, kindRecord, idKey), []byte(bytes))
				tx.set(appendTimeKey(nil, q.number, kindDue, entry{tx.now, idKey}), []byte{dueStored})
			},
			state: store.StateReady, dies: true,
		},
		"an entry that is none": {
			damage: func(tx *tx, q *queue) { tx.set(append(appendKey(nil, q.number, kindDue), 0, 0), nil) },
			state:  store.StateReady, byID: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openOn(t, vfs.NewMem(), newManualClock())
			defer s.Close()
			send(t, s, idKey, "good")
			if err := s.do(t.Context(), "q", urgent, func(tx *tx) { c.damage(tx, s.queue("q")) }); err != nil {
				t.Fatal(err)
			}
			p, err := s.List(t.Context(), "q", store.ListRequest{State: store.StateReady, Limit: 10})
			if listed := len(p.Messages) == 2; err != nil || listed != (c.state != "") ||
				listed && p.Messages[0].State != c.state {
				t.Errorf("list gives %+v, %v", p.Messages, err)
			}
			r, err := s.Reschedule(t.Context(), "q", []string{"good", idKey}, store.Due{})
			if err != nil || r[0] != nil || c.byID != (r[1] == nil) {
				t.Errorf("reschedule gives %v, %v", r, err)
			}
			claimed, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 10, Lease: time.Minute})
			want := 1
			if c.byID {
				want = 2
			}
			if err != nil || len(claimed.Messages) != want || (len(claimed.Died) == 1) != c.dies || claimed.More {
				t.Fatalf("claim gives %+v, %v", claimed, err)
			}
			stats, err := s.Stats(t.Context(), "q")
			if err != nil || stats.Ready+stats.Scheduled != 0 || (stats.Dead == 1) != c.dies {
				t.Errorf("stats are %+v, %v", stats, err)
			}
			infos, err := s.Get(t.Context(), "q", []string{idKey})
			if err != nil || (infos[0] != nil) != (c.dies || c.byID) {
				t.Fatalf("get gives %v, %v", infos, err)
			}
			if !c.dies {
				return
			}
			if i := infos[0]; i.DeadReason != store.DeadUnreadable || string(i.Raw) != c.raw ||
				i.LastError != store.UnreadableText {
				t.Errorf("it is dead as %+v", i)
			}
			cancelled, err := s.Cancel(t.Context(), "q", store.CancelRequest{IDs: []string{idKey, idKey}})
			if err != nil || cancelled[0].State != store.StateDead || !errors.Is(cancelled[1].Err, store.ErrNotFound) {
				t.Errorf("cancel gives %v, %v", cancelled, err)
			}
		})
	}
}

func TestCancelTellsWhichOfItsMessagesCannotBeRead(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	send(t, s, "good", "bad")
	if err := s.do(t.Context(), "q", urgent, func(tx *tx) {
		tx.set(appendIDKey(nil, s.queue("q").number, kindRecord, "bad"), []byte("abc"))
	}); err != nil {
		t.Fatal(err)
	}
	r, err := s.Cancel(t.Context(), "q", store.CancelRequest{IDs: []string{"bad", "good"}})
	if err != nil || !errors.Is(r[0].Err, store.ErrCorrupt) || r[1].Err != nil || r[1].State != store.StateReady {
		t.Errorf("cancel gives %v, %v, want the good one cancelled and ErrCorrupt for the other", r, err)
	}
}

// large sends n messages of the longest payload.
func large(t *testing.T, s *Store, n int, change func(*store.Outgoing)) (ids []string) {
	t.Helper()
	for i := range n {
		m := store.Outgoing{Message: store.Message{ID: strconv.Itoa(i), Payload: noise[:store.MaxPayload]}}
		change(&m)
		if _, err := s.Send(t.Context(), "q", []store.Outgoing{m}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, m.ID)
	}
	return ids
}

func TestClaimReadsABoundedPartOfWhatExpired(t *testing.T) {
	const messages, most = 40, 4 * store.MaxBatchBytes / store.MaxPayload
	clock := newManualClock()
	s := openOn(t, vfs.NewMem(), clock)
	defer s.Close()
	large(t, s, messages, func(m *store.Outgoing) { m.ExpireAfter = time.Second })
	clock.Advance(time.Hour)
	died := 0
	for more := true; more; {
		c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Hour})
		if err != nil || len(c.Died) == 0 || len(c.Died) > most {
			t.Fatalf("a claim sets %d messages of 1 MiB aside, %v, want 1 to %d", len(c.Died), err, most)
		}
		died += len(c.Died)
		more = c.More
	}
	if died != messages {
		t.Errorf("%d messages died, want %d", died, messages)
	}
}

func TestCallsByIDDoNotReadTheMessages(t *testing.T) {
	const messages = 50
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	ids := large(t, s, messages, func(*store.Outgoing) {})
	allocated := func(what string, call func() error) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := call(); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > messages<<20/4 {
			t.Errorf("%s of %d messages of 1 MiB takes %d MiB of memory", what, messages, n>>20)
		}
	}
	allocated("reschedule", func() error {
		_, err := s.Reschedule(t.Context(), "q", ids, store.Due{})
		return err
	})
	allocated("cancel", func() error {
		_, err := s.Cancel(t.Context(), "q", store.CancelRequest{IDs: ids})
		return err
	})
}

func TestGetOfLongMessagesComesInPartsAndInOrder(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	ids := append(large(t, s, 10, func(*store.Outgoing) {}), "none")
	infos, err := s.Get(t.Context(), "q", ids)
	if err != nil || len(infos) != len(ids) {
		t.Fatal(len(infos), err)
	}
	for i, info := range infos {
		if (info == nil) != (ids[i] == "none") ||
			info != nil && (info.ID != ids[i] || len(info.Payload) != store.MaxPayload) {
			t.Errorf("in the place of %s there is %v", ids[i], info)
		}
	}
}

// One long message makes claims shorter only while it is read.
func TestClaimsAreLongAgainAfterALongMessage(t *testing.T) {
	clock := newManualClock()
	s := openOn(t, vfs.NewMem(), clock)
	defer s.Close()
	large(t, s, 20, func(*store.Outgoing) {})
	clock.Advance(time.Millisecond)
	sendMany(t, s, 6*store.MaxBatch, func(m *store.Outgoing) { m.Payload = []byte("small") })
	for n := 0; n < 20; {
		got := len(claimed(t, s, store.MaxBatch, time.Hour))
		if got == 0 || n+got < 20 && got > 2*store.MaxBatchBytes/store.MaxPayload {
			t.Fatalf("a claim returns %d messages of 1 MiB", got)
		}
		n += got
	}
	claimed(t, s, store.MaxBatch, time.Hour)
	if got := len(claimed(t, s, store.MaxBatch, time.Hour)); got != store.MaxBatch {
		t.Errorf("a claim of small messages returns %d, want %d", got, store.MaxBatch)
	}
	execute(t, s, func(*tx) {
		if got := s.queues["q"].window; got != store.MaxBatch {
			t.Errorf("claims still read %d messages at a time", got)
		}
	})
}

func TestClaimReadsABoundedPartOfLongMessages(t *testing.T) {
	const messages = 100
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	large(t, s, messages, func(*store.Outgoing) {})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if got := len(claimed(t, s, store.MaxBatch, time.Hour)); got != store.MaxBatchBytes/store.MaxPayload-1 {
		t.Errorf("a claim returns %d messages of 1 MiB", got)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 25*store.MaxBatchBytes {
		t.Errorf("a claim of messages of 1 MiB takes %d MiB of memory", n>>20)
	}
}
