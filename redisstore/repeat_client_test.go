package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// otherClient changes a queue as other processes do.
type otherClient struct {
	*testing.T
	s     *Store
	queue string
}

func (o otherClient) send(id string, due time.Duration) {
	send(o.T, o.s, o.queue, id, store.Due{Delay: due})
}

func (o otherClient) sendOnce(id, key, request string) {
	o.Helper()
	m := store.Outgoing{Message: store.Message{ID: id}, Once: store.NewOnce([]byte(key), []byte(request))}
	if r, err := o.s.Send(o.Context(), o.queue, []store.Outgoing{m}); err != nil || !r[0].Added() {
		o.Errorf("Send(%s) = %+v, %v", id, r, err)
	}
}

func (o otherClient) cancel(id string) {
	o.Helper()
	if r, err := o.s.Cancel(o.Context(), o.queue, store.CancelRequest{IDs: []string{id}}); err != nil ||
		r[0].Err != nil {
		o.Errorf("Cancel(%s) = %+v, %v", id, r, err)
	}
}

func (o otherClient) hold(id string) store.Receipt {
	o.Helper()
	o.send(id, 0)
	c := claim(o.T, o.s, o.queue, 1, time.Minute)
	if len(c.Messages) != 1 || c.Messages[0].ID != id {
		o.Fatalf("want %s claimed, got %+v", id, c.Messages)
	}
	return c.Messages[0].Receipt
}

func (o otherClient) bury(id string) {
	o.Helper()
	o.settle(store.Settlement{Receipt: o.hold(id), Action: store.Bury})
}

// buryOf buries a message with a key.
func (o otherClient) buryOf(key, id string) {
	o.Helper()
	messages := []store.Outgoing{{Message: store.Message{ID: id, Key: key}}}
	if _, err := o.s.Send(o.Context(), o.queue, messages); err != nil {
		o.Error(err)
	}
	c := claim(o.T, o.s, o.queue, 1, time.Minute)
	if len(c.Messages) != 1 || c.Messages[0].ID != id {
		o.Fatalf("want %s claimed, got %+v", id, c.Messages)
	}
	o.settle(store.Settlement{Receipt: c.Messages[0].Receipt, Action: store.Bury})
}

func (o otherClient) settle(st store.Settlement) {
	o.Helper()
	if r, err := o.s.Settle(o.Context(), o.queue, []store.Settlement{st}); err != nil || r[0].Err != nil {
		o.Errorf("Settle(%s) = %+v, %v", st.Receipt.ID, r, err)
	}
}

func (o otherClient) pause(paused bool) {
	o.Helper()
	if err := o.s.SetPaused(o.Context(), o.queue, paused); err != nil {
		o.Error(err)
	}
}

func (o otherClient) setProperties(set map[string]string) {
	o.Helper()
	if err := o.s.SetProperties(o.Context(), o.queue, set, nil); err != nil {
		o.Error(err)
	}
}

// fillProperties sets as many properties as a queue may have.
func (o otherClient) fillProperties() {
	o.Helper()
	for i := range store.MaxProperties / store.MaxBatch {
		set := map[string]string{}
		for j := range store.MaxBatch {
			set[fmt.Sprint(i*store.MaxBatch+j)] = "1"
		}
		o.setProperties(set)
	}
}

func (o otherClient) info(id string) *store.Info {
	o.Helper()
	infos, err := o.s.Get(o.Context(), o.queue, []string{id})
	if err != nil {
		o.Fatal(err)
	}
	return infos[0]
}

// state returns the contents of the queue, without lease deadlines.
func (o otherClient) state() string {
	o.Helper()
	st, err := o.s.Stats(o.Context(), o.queue)
	if err != nil {
		o.Fatal(err)
	}
	properties, err := o.s.Properties(o.Context(), o.queue)
	if err != nil {
		o.Fatal(err)
	}
	limits := o.s.rdb.HMGet(o.Context(), o.s.keys.key(o.queue, "meta"), "flow_since", "flow_leased", "flow_next_us",
		"flow_rem")
	text := fmt.Sprintf("paused %t, %+v, %q, limits %v\n", st.Paused, st.DeadRetention, properties, limits.Val())
	for _, state := range []store.State{store.StateScheduled, store.StateReady, store.StateLeased, store.StateDead} {
		page, err := o.s.List(o.Context(), o.queue, store.ListRequest{State: state, Limit: 100})
		if err != nil {
			o.Fatal(err)
		}
		for _, in := range page.Messages {
			in.LeaseDeadline = time.Time{}
			text += fmt.Sprintf("%+v\n", in)
		}
	}
	return text
}

// isOpen is met while open has set a property to "1".
var isOpen = &store.Condition{Property: "open", Value: "1"}

func (o otherClient) open(value string) {
	o.Helper()
	if err := o.s.SetProperties(o.Context(), o.queue, map[string]string{"open": value}, nil); err != nil {
		o.Error(err)
	}
}
