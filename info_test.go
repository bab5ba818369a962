package later

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/store"
)

func TestInfoIsTheSameFromEveryCall(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		var infos log[*Info]
		w := NewWorker(c, WorkerConfig{OnDead: func(_ context.Context, info *Info) { infos.add(info) }})
		w.Handle("q", func(context.Context, *Message) error { return Bury(errors.New("bad")) })
		start(t, w)
		id := mustSend(t, q, "payload")
		synctest.Wait()
		info, err := q.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		infos.add(info)
		page, err := q.List(t.Context(), ListOptions{State: StateDead})
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range page.Messages {
			infos.add(info)
		}
		for info, err := range q.All(t.Context(), ListOptions{State: StateDead}) {
			if err != nil {
				t.Fatal(err)
			}
			infos.add(info)
		}
		all := infos.list()
		if len(all) != 4 {
			t.Fatalf("%d infos; want one each of OnDead, Get, List and All", len(all))
		}
		sent, _ := store.IDTime(id)
		for i, info := range all {
			if info.ID != id || info.Queue != "q" || string(info.Payload) != "payload" || info.State != StateDead ||
				info.MaxAttempts != store.DefaultMaxAttempts || !info.SentAt.Equal(sent) {
				t.Errorf("info %d: %+v", i, info)
			}
		}
	})
}

func TestInfoKeepsTheSendersValues(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, sent := c.Queue("q"), time.Now()
		mustSend(t, q, "", WithID("id"), MaxAttempts(3))
		time.Sleep(time.Minute)
		info, err := q.Get(t.Context(), "id")
		if err != nil || info.MaxAttempts != 3 || !info.SentAt.Equal(sent) {
			t.Errorf("Get returned %+v, %v", info, err)
		}
	})
}
