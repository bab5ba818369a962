package diskstore

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

func TestRecoverOfADamagedOutbox(t *testing.T) {
	for name, damage := range map[string]struct {
		change func(r raw)
		checks string
		want   []string
	}{
		"cut": {func(r raw) {
			key := r.id(kindOutbox, "")
			value := r.get(key)
			r.set(key, value[:len(value)-3])
		}, "outbox", []string{"w", "x", "z"}},
		"lost": {func(r raw) { r.remove(r.id(kindOutbox, "")) }, "", []string{"z"}},
		"older state": {func(r raw) {
			r.set(r.id(kindOutbox, ""), appendOutbox(nil, &outbox{parcelHead: parcelHead{Number: 1}}))
		}, "", []string{"z"}},
	} {
		t.Run(name, func(t *testing.T) {
			fs, clock := vfs.NewMem(), newManualClock()
			s := openOn(t, fs, clock)
			twoSubQueues(t, s, "u", "v", "w", "x", "y", "z")
			for _, id := range []string{"u", "v"} {
				p := departs(t, s, id)
				try(t, s.Arrive(t.Context(), p))
				try(t, s.Empty(t.Context(), subA, p.Number))
			}
			departs(t, s, "w", "x", "y")
			damage.change(raw{t, s, s.queues[subA].number})
			if damage.checks != "" {
				wantIssues(t, issuesOf(checked(t, s)), damage.checks)
				_, err := s.Outbox(t.Context(), subA)
				if name == "cut" {
					err = s.Arrive(t.Context(), &store.Parcel{From: subA, To: subB, Number: 9, Data: []byte("\x01")})
				}
				if !errors.Is(err, store.ErrCorrupt) {
					t.Errorf("a call that reads it returns %v", err)
				}
			}
			s.Close()
			s = recoveredStore(t, fs, clock)
			defer s.Close()
			wantSound(t, s)
			wantLive(t, s, subA, damage.want...)
			move(t, s)
			wantLive(t, s, subB, append([]string{"u", "v"}, damage.want...)...)
		})
	}
}

func TestScanHasManyParts(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	twoSubQueues(t, s)
	want := map[string]bool{}
	for i := range 3 {
		msgs := make([]store.Outgoing, 400)
		for j := range msgs {
			msgs[j] = plain(fmt.Sprintf("%d-%03d", i, j))
			want[msgs[j].ID] = true
		}
		_, err := s.Send(t.Context(), subA, msgs)
		try(t, err)
	}
	c, err := s.Claim(t.Context(), subA, store.ClaimRequest{Max: store.MaxBatch, Lease: time.Hour})
	try(t, err)
	acks := make([]store.Settlement, len(c.Messages))
	for i, m := range c.Messages {
		acks[i] = store.Settlement{Receipt: m.Receipt, Action: store.Ack, DedupWindow: time.Hour}
	}
	_, err = s.Settle(t.Context(), subA, acks)
	try(t, err)
	parts := 0
	for cursor := ""; ; {
		part, err := s.Scan(t.Context(), subA, cursor)
		try(t, err)
		if parts++; len(part.IDs) > store.MaxBatch {
			t.Errorf("a part has %d ids", len(part.IDs))
		}
		for _, id := range part.IDs {
			delete(want, id)
		}
		if cursor = part.Next; cursor == "" {
			break
		}
	}
	if len(want) > 0 || parts < 3 {
		t.Errorf("%d parts leave %d ids out", parts, len(want))
	}
	if _, err := s.Scan(t.Context(), subA, "x:1"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("another cursor gets %v", err)
	}
}

func TestWhatIsThereStaysWhenAParcelArrives(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	twoSubQueues(t, s, "x", "y")
	sendAll(t, s, subB, "x")
	execute(t, s, func(t *tx) {
		t.remember(s.queues[subA], "a", t.now+1000)
		t.remember(s.queues[subB], "a", t.now+2000)
		t.remember(s.queues[subA], "b", t.now+2000)
		t.remember(s.queues[subB], "b", t.now+1000)
		t.remember(s.queues[subA], "c", t.now+1000)
		t.remember(s.queues[subB], "c", t.now+1000)
	})
	try(t, s.Arrive(t.Context(), departs(t, s, "x", "y", "a", "b", "c")))
	wantLive(t, s, subB, "x", "y")
	wantSound(t, s)
	execute(t, s, func(tx *tx) {
		for id, want := range map[string]int64{"a": 2000, "b": 2000, "c": 1000} {
			if until, err := tx.remembered(s.queues[subB].number, id); err != nil || until != tx.now+want {
				t.Errorf("%s is remembered for %d ms, %v", id, until-tx.now, err)
			}
		}
	})
}

func TestDamagedMessagesMove(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	twoSubQueues(t, s, "unreadable", "lost", "sound")
	r := raw{t, s, s.queues[subA].number}
	bytes := append(appendTime(nil, r.due("unreadable")), "\xffbytes"...)
	r.set(r.id(kindMessage, "unreadable"), bytes)
	r.set(r.id(kindRecord, "lost"), []byte("x"))
	d, err := s.Depart(t.Context(), subA, store.Departure{To: subB, IDs: []string{"unreadable", "lost", "sound"}})
	if err != nil || !slices.Equal(d.Leased, []string{"lost"}) {
		t.Fatalf("departed is %+v, %v", d, err)
	}
	try(t, s.Arrive(t.Context(), d.Parcel))
	wantLive(t, s, subB, "sound", "unreadable")
	if got := (raw{t, s, s.queues[subB].number}).id(kindMessage, "unreadable"); string(r.get(got)) != string(bytes) {
		t.Errorf("it has arrived as %q", r.get(got))
	}
}

func TestParcelsOfFairQueuesAreSound(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	twoSubQueues(t, s)
	flow := store.Flow{Concurrency: 9, Urgency: true, Key: store.KeyFlow{Order: store.OrderHalt}}
	for _, name := range []string{subA, subB} {
		try(t, s.SetFlow(t.Context(), name, flow, nil))
	}
	var ids []string
	for i := range 20 {
		m := plain(fmt.Sprintf("m%02d", i))
		m.Key, m.Urgency = fmt.Sprint(i%3), urgencies[i%len(urgencies)]
		_, err := s.Send(t.Context(), subA, []store.Outgoing{m})
		try(t, err)
		ids = append(ids, m.ID)
	}
	claim := func(queue string) []store.Claimed {
		c, err := s.Claim(t.Context(), queue, store.ClaimRequest{Max: 2, Lease: time.Hour})
		try(t, err)
		return c.Messages
	}
	first := claim(subA)
	settlements := []store.Settlement{{Receipt: first[0].Receipt, Action: store.Bury},
		{Receipt: first[1].Receipt, Action: store.Nack, Delay: time.Minute}}
	_, err := s.Settle(t.Context(), subA, settlements)
	try(t, err)
	wantSound(t, s)
	move(t, s)
	wantSound(t, s)
	wantLive(t, s, subA)
	wantLive(t, s, subB, ids...)
	s.Close()
	s = openOn(t, fs, clock)
	defer s.Close()
	wantSound(t, s)
	clock.Advance(time.Hour)
	last := map[string]string{}
	for n := 0; n < len(ids)-1; {
		all := claim(subB)
		if len(all) == 0 {
			try(t, s.ResumeKey(t.Context(), subB, first[0].Key)) // halted, so none of its messages has started
			all = claim(subB)
			if last[first[0].Key] != "" || len(all) == 0 {
				t.Fatalf("%v started, and %d behind the halt", last, len(all))
			}
		}
		for _, m := range all {
			isHolder := m.ID == first[1].ID
			if n++; m.ID < last[m.Key] || isHolder != (m.Attempt == 2) || isHolder && last[m.Key] != "" {
				t.Errorf("of key %s, %s starts behind %s", m.Key, m.ID, last[m.Key])
			}
			if !isHolder {
				last[m.Key] = m.ID
			}
			_, err := s.Settle(t.Context(), subB, []store.Settlement{{Receipt: m.Receipt, Action: store.Ack}})
			try(t, err)
		}
		wantSound(t, s)
	}
}

func TestRequestsDoNotRememberMoves(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	twoSubQueues(t, s, "x")
	ctx := store.WithRequest(t.Context(), store.Request{Session: "s", Number: 1})
	d, err := s.Depart(ctx, subA, store.Departure{To: subB, IDs: []string{"x"}})
	try(t, err)
	try(t, s.Arrive(ctx, d.Parcel))
	try(t, s.Empty(ctx, subA, 1))
	for range 2 {
		r, err := s.Cancel(ctx, subB, store.CancelRequest{IDs: []string{"x"}})
		if err != nil || r[0].Err != nil {
			t.Errorf("the cancel returns %+v, %v", r, err)
		}
	}
}

func TestMovesOnAFullDisk(t *testing.T) {
	disk := &quotaFS{FS: vfs.NewMem(), total: 1 << 30}
	s, err := Open("later", withFS(disk), WithClock(newManualClock()), withReserve(1<<20))
	try(t, err)
	defer s.Close()
	twoSubQueues(t, s, "x", "y")
	p := departs(t, s, "x")
	disk.fill(8 << 20)
	_, err = s.Send(t.Context(), subA, []store.Outgoing{plain("z")})
	if !errors.Is(err, store.ErrFull) {
		t.Errorf("a send returns %v", err)
	}
	try(t, s.Arrive(t.Context(), p))
	try(t, s.Empty(t.Context(), subA, p.Number))
	d, err := s.Depart(t.Context(), subA, store.Departure{To: subB, IDs: []string{"y"}})
	if !errors.Is(err, store.ErrFull) {
		t.Errorf("departed is %+v, %v", d, err)
	}
	try(t, s.Rename(t.Context(), subB, "q", "moved", ""))
	try(t, s.Retire(t.Context(), subA, "over"))
	wantLive(t, s, "q", "x")
}

func TestRenamedQueueForgetsWhatHasArrived(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	twoSubQueues(t, s, "x")
	p := departs(t, s, "x")
	try(t, s.Arrive(t.Context(), p))
	number := s.queues[subB].number
	try(t, s.Rename(t.Context(), subB, "q", "moved", ""))
	wantMoved(t, s.Arrive(t.Context(), p), "moved")
	execute(t, s, func(tx *tx) {
		if n, err := tx.arrived(number, subA); n != 0 || err != nil {
			t.Errorf("the number of the parcel is %d, %v", n, err)
		}
	})
	wantSound(t, s)
}
