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
		{"a message without location", [][]any{{"HSET", "messages", "lost", "x"}}, []string{"lost has no location"}},
		{"no message", [][]any{{"ZADD", "dead", 1, "gone"}}, []string{"gone is in dead but has no message"}},
		{"due and packed", [][]any{{"ZADD", "due", 1, "f"}}, []string{"f is in both due and bucket"}},
		{"due and leased", [][]any{{"ZADD", "due", 1, "l"}}, []string{"l is in both due and lease"}},
		{"no deadline", [][]any{{"ZREM", "lease_deadlines", "lease1"}}, []string{"- lease lease1 has no deadline"}},
		{"no lease", [][]any{{"ZADD", "lease_deadlines", 1, "lease2"}}, []string{"- deadline lease2 has no lease"}},
		{"no start", [][]any{{"DEL", "bucket_starts"}}, []string{"- bucket a1 has no start"}},
		{"no bucket", [][]any{{"ZADD", "bucket_starts", 1, "a2"}}, []string{"- start a2 has no bucket"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			consistent := [][]any{
				{"DEL", "messages"}, {"DEL", "due"}, {"DEL", "dead"}, {"DEL", "buckets"}, {"DEL", "bucket_starts"},
				{"DEL", "leases"}, {"DEL", "lease_deadlines"}, {"HSET", "messages", "m", "x", "d", "x", "f",
					"x", "l", "x"},
				{"ZADD", "due", 1, "m"}, {"ZADD", "dead", 1, "d"},
				{"HSET", "buckets", "a1", "\n5\tf\n"}, {"ZADD", "bucket_starts", 1 << 20, "a1"},
				{"HSET", "leases", "lease1", "\n\t7\nl\n"}, {"ZADD", "lease_deadlines", 9, "lease1"},
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
			want := map[string]string{"m": "due", "d": "dead", "f": "bucket", "l": "lease"}
			if c.set == nil && !maps.Equal(locations, want) {
				t.Errorf("got locations %v, want %v", locations, want)
			}
		})
	}
}
