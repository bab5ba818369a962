package later

import (
	"testing"
	"time"

	"github.com/laterq/later/internal/reserved"
)

// TestScheduleMessageWasSentWhenTheScheduleWasCreated looks at it after a change and after a step.
func TestScheduleMessageWasSentWhenTheScheduleWasCreated(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		s := everyMinute("a")
		put(t, c, s, PutCreated)
		want := func() {
			t.Helper()
			infos, err := c.store.Get(t.Context(), reserved.Schedules, []string{"a"})
			if err != nil || !infos[0].SentAt.Equal(start) {
				t.Errorf("sent at %v, %v; want %v", infos[0].SentAt, err, start)
			}
		}
		time.Sleep(time.Second)
		s.Payload = nil
		put(t, c, s, PutChanged)
		want()
		ran := work(t, c, start, nil)
		time.Sleep(time.Minute)
		ran.want(t, "1m0s")
		want()
		ran.stop()
	})
}
