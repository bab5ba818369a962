package redistest

import (
	"maps"
	"slices"
	"testing"
)

func TestPlacesTellsWhatDoesNotAgree(t *testing.T) {
	rdb := Shared(t).Client(t)
	for _, c := range []struct {
		name  string
		set   [][]any
		wrong []string
	}{
		{"all agrees", nil, nil},
		{"a message in no state", [][]any{{"HSET", "msg", "lost", "x"}}, []string{"lost is in no state"}},
		{"no message", [][]any{{"ZADD", "dead", 1, "gone"}}, []string{"gone is in dead and has no message"}},
		{"due and far", [][]any{{"ZADD", "due", 1, "f"}}, []string{"f is in due and in far"}},
		{"due and leased", [][]any{{"ZADD", "due", 1, "l"}}, []string{"l is in due and in lease"}},
		{"no deadline", [][]any{{"ZREM", "expiry", "lease1"}}, []string{"- lease lease1 has no deadline"}},
		{"no lease", [][]any{{"ZADD", "expiry", 1, "lease2"}}, []string{"- deadline lease2 is of no lease"}},
		{"no begin", [][]any{{"DEL", "fars"}}, []string{"- bucket a1 has no begin"}},
		{"no bucket", [][]any{{"ZADD", "fars", 1, "a2"}}, []string{"- begin a2 is of no bucket"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sound := [][]any{
				{"DEL", "msg"}, {"DEL", "due"}, {"DEL", "dead"}, {"DEL", "far"}, {"DEL", "fars"}, {"DEL", "lease"}, {"DEL", "expiry"},
				{"HSET", "msg", "m", "x", "d", "x", "f", "x", "l", "x"}, {"ZADD", "due", 1, "m"}, {"ZADD", "dead", 1, "d"},
				{"HSET", "far", "a1", "\n5\tf\n"}, {"ZADD", "fars", 1 << 20, "a1"},
				{"HSET", "lease", "lease1", "\n\t7\nl\n"}, {"ZADD", "expiry", 9, "lease1"},
			}
			for _, command := range append(sound, c.set...) {
				command[1] = "later:{places}:" + command[1].(string)
				if err := rdb.Do(t.Context(), command...).Err(); err != nil {
					t.Fatal(command, err)
				}
			}
			var wrong []string
			places, err := Places(t.Context(), rdb, "places", func(id, text string) { wrong = append(wrong, id+" "+text) })
			if err != nil || !slices.Equal(wrong, c.wrong) {
				t.Errorf("%v, %v; want %v", wrong, err, c.wrong)
			}
			if want := map[string]string{"m": "due", "d": "dead", "f": "far", "l": "lease"}; c.set == nil && !maps.Equal(places, want) {
				t.Errorf("places are %v, want %v", places, want)
			}
		})
	}
}
