package activity_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/activity"
	"github.com/laterq/later/store"
)

func TestRingIsBounded(t *testing.T) {
	var r activity.Ring
	for i := range int64(100_000) {
		r.Add(1_700_000_000_000+i*7919, map[store.EventKind]int64{"sent": 1})
	}
	text := string(r.Append(nil))
	if n := strings.Count(text, "\n"); n != activity.MaxBuckets {
		t.Errorf("the ring has %d buckets, want %d", n, activity.MaxBuckets)
	}
}

func TestRingTextRoundTrip(t *testing.T) {
	var r activity.Ring
	now := time.UnixMilli(1_700_000_000_000)
	r.Add(now.UnixMilli(), map[store.EventKind]int64{"sent": 1 << 60, "lease_lost": 2, "acked": 0})
	r.Add(now.UnixMilli()+100_000, map[store.EventKind]int64{"sent": 1})
	again, err := activity.Parse(string(r.Append(nil)))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := again.At(now), r.At(now); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestRingIgnoresBucketsOfTheFuture(t *testing.T) {
	var r activity.Ring
	r.Add(1_700_000_000_000, map[store.EventKind]int64{"sent": 1})
	a := r.At(time.UnixMilli(1_700_000_000_000 - 30*3_600_000))
	if len(a.Minute.Counts)+len(a.Hour.Counts)+len(a.Day.Counts) > 0 {
		t.Errorf("a clock that went back counts %+v", a)
	}
}

func TestRingRefusesOtherText(t *testing.T) {
	for _, text := range []string{"m0", "m0 x", "m0 1 sent", "m0 1 sent x", "m7 1", "x0 1", "m 1", "m-1 1",
		"h13 1", " "} {
		if _, err := activity.Parse(text); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("Parse(%q) = %v, want ErrCorrupt", text, err)
		}
	}
}
