package later

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestRepeatedRequestReturnsTheFirstSend(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		request := Outgoing{Payload: []byte("x"), When: In(time.Hour)}
		if err := Once([]byte("k"), []byte("1")).applySend(&request); err != nil {
			t.Fatal(err)
		}
		first, err := q.SendMessage(t.Context(), request)
		if err != nil || first.Outcome != SendSent || !first.Due.Equal(time.Now().Add(time.Hour)) {
			t.Fatalf("sent %+v, %v", first, err)
		}
		want := SendResult{ID: first.ID, Due: first.Due, Outcome: SendDuplicate, Duplicate: true}
		time.Sleep(store.OnceWindow - time.Millisecond) // of the bubble's clock
		if err := mustReceive(t, q, 1)[0].Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		if again, err := q.SendMessage(t.Context(), request); err != nil || again != want {
			t.Errorf("again: %+v, %v; want %+v", again, err, want)
		}
		results, err := q.SendBatch(t.Context(), []Outgoing{{Payload: []byte("plain")}, request, {Payload: []byte("more")}})
		if err != nil || results[1] != want || results[0].Outcome != SendSent || results[2].Outcome != SendSent {
			t.Errorf("again in a batch: %+v, %v", results, err)
		}
		if id, err := q.Send(t.Context(), nil, Once([]byte("k"), []byte("1"))); id != first.ID || err != nil {
			t.Errorf("again with other options: %q, %v", id, err)
		}
		other := Once([]byte("k"), []byte("2"))
		_, err = q.Send(t.Context(), nil, other)
		wantError(t, err, ErrConflict)
		if !strings.Contains(err.Error(), "another request") {
			t.Errorf("error is %q", err)
		}
		conflicting := Outgoing{}
		_ = other.applySend(&conflicting)
		results, err = q.SendBatch(t.Context(), []Outgoing{conflicting, {}})
		if err != nil || CodeOf(results[0].Err) != "conflict" || results[1].Err != nil {
			t.Errorf("a batch with another request: %+v, %v", results, err)
		}
		time.Sleep(time.Millisecond)
		if late, err := q.SendMessage(t.Context(), request); err != nil || late.Outcome != SendSent || late.ID == first.ID {
			t.Errorf("after a day: %+v, %v", late, err)
		}
	})
}

func TestARepeatedRequestGoesToTheShardOfTheFirst(t *testing.T) {
	c := newClientOn(t, memstore.New())
	if err := store.SetShards(t.Context(), c.store, "q", 16); err != nil {
		t.Fatal(err)
	}
	q := c.Queue("q")
	for i := range 50 {
		request := Once(fmt.Append(nil, i), []byte("1"))
		first, err := q.Send(t.Context(), nil, request)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // ids of another millisecond have another slot
		if again, err := q.Send(t.Context(), nil, request); again != first || err != nil {
			t.Fatalf("request %d: sent %q and %q, %v", i, first, again, err)
		}
	}
}

func TestPublishWithOnceIsPublishedOnce(t *testing.T) {
	c := newClientOn(t, memstore.New())
	topic := c.Topic("t")
	for range 3 {
		if _, err := topic.Publish(t.Context(), []byte("x"), Once([]byte("k"), nil)); err != nil {
			t.Error(err)
		}
	}
	wantCounts(t, topic.Queue(), 0, 1, 0, 0)
}

func TestConcurrentSendsWithOnceSendOne(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	var sent atomic.Int64
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			o := Outgoing{Payload: []byte("x")}
			if i%4 > 0 { // the others are sent with them
				_ = Once([]byte(fmt.Sprint(i/8)), nil).applySend(&o)
			}
			if r, err := q.SendMessage(context.Background(), o); err != nil {
				t.Error(err)
			} else if r.Outcome == SendSent {
				sent.Add(1)
			}
		})
	}
	all.Wait()
	if sent.Load() != 50+25 {
		t.Errorf("%d were sent, want 50 without a key and 25 of 25 keys", sent.Load())
	}
}

func TestOnceIsRefusedWhereItHasNoMeaning(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	once := Once([]byte("k"), nil)
	_, err := q.With(once)
	wantError(t, err, ErrInvalid)
	_, err = q.Send(t.Context(), nil, once, once)
	wantError(t, err, ErrInvalid)
	_, err = q.SendSeries(t.Context(), nil, Series{Until: time.Now().Add(time.Hour), Offsets: []time.Duration{0}}, once)
	wantError(t, err, ErrInvalid)
	wantError(t, Then("q", nil, once).err, ErrInvalid)
	mustSend(t, q, "x", WithID("m"))
	err = q.Edit(t.Context(), "m", func(o *Outgoing) error { return once.applySend(o) })
	wantError(t, err, ErrInvalid)
}
