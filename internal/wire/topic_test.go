package wire

import (
	"testing"
	"time"

	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/store"
)

func TestWireTopics(t *testing.T) {
	cfg := NewTopicConfig(true, time.Minute, 7)
	now := time.Date(2030, 12, 31, 23, 59, 59, 0, time.UTC)
	counts := store.Stats{Scheduled: 1, Ready: 2, Leased: 3, Dead: 4, Now: now}
	subscriptions := []Subscription{{Stats: NewStats("q", counts), Where: "a=b"}}
	for _, test := range []struct {
		value any
		want  string
	}{
		{NewTopic("t", counts, store.Stats{Ready: 5}, cfg, subscriptions),
			`{"topic":"t","scheduled":1,"ready":2,"leased":3,"dead":4,"history":5,"drop_unsubscribed":true,` +
				`"history_age":"1m0s","history_count":7,"subscriptions":[{"queue":"q","scheduled":1,"ready":2,"leased":3,` +
				`"dead":4,"paused":false,"now":"2030-12-31T23:59:59.000Z","where":"a=b"}]}`},
		{NewTopic("t", store.Stats{}, store.Stats{}, TopicConfig{}, nil),
			`{"topic":"t","scheduled":0,"ready":0,"leased":0,"dead":0,"history":0,"drop_unsubscribed":false,` +
				`"subscriptions":[]}`},
		{Subscribed{Topic: "t", Queue: "q"}, `{"topic":"t","queue":"q","subscribed":false}`},
		{Rewound{Topic: "t", Queue: "q", Sent: 1}, `{"topic":"t","queue":"q","sent":1,"kept":0}`},
		{ConfiguredTopic{"t", cfg}, `{"topic":"t","drop_unsubscribed":true,"history_age":"1m0s","history_count":7}`},
		{DeletedTopic{"t", true}, `{"topic":"t","deleted":true}`},
	} {
		if got := string(jsontext.Append(nil, test.value)); got != test.want {
			t.Errorf("%T\n got  %s\n want %s", test.value, got, test.want)
		}
	}
}
