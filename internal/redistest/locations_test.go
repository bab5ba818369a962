package redistest

import (
	"maps"
	"slices"
	"testing"
)

func TestLocationsReportsMismatches(t *testing.T) {
	rdb := Shared(t).Client(t)
	for _, c := range []struct {
		name       string
		set        [][]any
		mismatches []string
	}{
		{"consistent", nil, nil},
		{"a message without location", [][]any{{"HSET", "msg", "lost", "x"}}, []string{"lost has no location"}},
		{"no message", [][]any{{"ZADD", "dead", 1, "gone"}}, []string{"gone is in dead but has no message"}},
		{"due and far", [][]any{{"ZADD", "due", 1, "f"}}, []string{"f is in both due and far"}},
		{"due and leased", [][]any{{"ZADD", "due", 1, "l"}}, []string{"l is in both due and lease"}},
		{"no deadline", [][]any{{"ZREM", "expiry", "lease1"}}, []string{"- lease lease1 has no deadline"}},
		{"no lease", [][]any{{"ZADD", "expiry", 1, "lease2"}}, []string{"- deadline lease2 has no lease"}},
		{"no start", [][]any{{"DEL", "fars"}}, []string{"- bucket a1 has no start"}},
		{"no bucket", [][]any{{"ZADD", "fars", 1, "a2"}}, []string{"- start a2 has no bucket"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			consistent := [][]any{
				{"DEL", "msg"}, {"DEL", "due"}, {"DEL", "dead"}, {"DEL", "far"}, {"DEL", "fars"}, {"DEL", "lease"},
				{"DEL", "expiry"}, {"HSET", "msg", "m", "x", "d", "x", "f", "x", "l", "x"},
				{"ZADD", "due", 1, "m"}, {"ZADD", "dead", 1, "d"},
				{"HSET", "far", "a1", "\n5\tf\n"}, {"ZADD", "fars", 1 << 20, "a1"},
				{"HSET", "lease", "lease1", "\n\t7\nl\n"}, {"ZADD", "expiry", 9, "lease1"},
			}
			for _, command := range append(consistent, c.set...) {
				command[1] = "later:{locations}:" + command[1].(string)
				if err := rdb.Do(t.Context(), command...).Err(); err != nil {
					t.Fatal(command, err)
				}
			}
			var mismatches []string
			locations, err := Locations(t.Context(), rdb, "locations", func(id, text string) {
				mismatches = append(mismatches, id+" "+text)
			})
			if err != nil || !slices.Equal(mismatches, c.mismatches) {
				t.Errorf("got mismatches %v, %v; want %v", mismatches, err, c.mismatches)
			}
			want := map[string]string{"m": "due", "d": "dead", "f": "far", "l": "lease"}
			if c.set == nil && !maps.Equal(locations, want) {
				t.Errorf("got locations %v, want %v", locations, want)
			}
		})
	}
}
