package store_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

func TestRestoredMessagesHaveLimits(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000)
	late := time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
	dead := func(i *store.Info) { i.State, i.DeadReason, i.DiedAt = store.StateDead, store.DeadFailed, at }
	raw := func(n int) func(i *store.Info) { return func(i *store.Info) { i.Raw = make([]byte, n) } }
	for _, c := range []struct {
		name   string
		change func(i *store.Info)
		kind   error
		words  []string
	}{
		{"ready", func(*store.Info) {}, nil, nil},
		{"leased", func(i *store.Info) { i.State, i.LeaseDeadline = store.StateLeased, at }, nil, nil},
		{"dead", dead, nil, nil},
		{"unreadable", raw(0), nil, nil},
		{"raw at the limit", raw(store.MaxBatchBytes), nil, nil},
		{"raw too large", raw(store.MaxBatchBytes + 1), store.ErrTooLarge, []string{"raw bytes", "4194305", "4194304"}},
		{"raw with a payload", func(i *store.Info) {
			i.Raw, i.Payload = []byte("x"), []byte("x")
		}, store.ErrInvalid, []string{"raw bytes", "payload"}},
		{"raw with headers", func(i *store.Info) {
			i.Raw, i.Headers = []byte("x"), map[string]string{"k": "v"}
		}, store.ErrInvalid, []string{"raw bytes", "headers"}},
		{"raw without id", func(i *store.Info) { i.ID, i.Raw = "", []byte("x") }, store.ErrInvalid,
			[]string{"id is empty"}},
		{"no id", func(i *store.Info) { i.ID = "" }, store.ErrInvalid, []string{"id is empty"}},
		{"payload", func(i *store.Info) {
			i.Payload = make([]byte, store.MaxPayload+1)
		}, store.ErrTooLarge, []string{"payload", "1048577", "1048576"}},
		{"timeout", func(i *store.Info) { i.Timeout = -1 }, store.ErrInvalid, []string{"timeout", "-1ns"}},
		{"sent at", func(i *store.Info) { i.SentAt = late }, store.ErrInvalid, []string{"sent at", "2200", "2199"}},
		{"no due time", func(i *store.Info) { i.Due = time.Time{} }, store.ErrInvalid, []string{"due time", "missing"}},
		{"due time", func(i *store.Info) { i.Due = late }, store.ErrInvalid, []string{"due time", "2200", "2199"}},
		{"attempts below zero", func(i *store.Info) {
			i.Attempts = -1
		}, store.ErrInvalid, []string{"attempts", "-1", "65535"}},
		{"attempts over the limit", func(i *store.Info) {
			i.Attempts = store.MaxAttempts + 1
		}, store.ErrInvalid, []string{"attempts", "65536", "65535"}},
		{"last error at the limit", func(i *store.Info) { i.LastError = strings.Repeat("x", store.MaxReason) }, nil,
			nil},
		{"last error too long", func(i *store.Info) {
			i.LastError = strings.Repeat("x", store.MaxReason+1)
		}, store.ErrInvalid, []string{"last error", "2049", "2048", "CutReason"}},
		{"last error not UTF-8", func(i *store.Info) {
			i.LastError = "\xff"
		}, store.ErrInvalid, []string{"last error", "UTF-8"}},
		{"failures at their limits", func(i *store.Info) {
			i.Failures = slices.Repeat([]store.Failure{{
				Time: at, Attempt: store.MaxAttempts, Duration: store.MaxDelay,
				Worker: strings.Repeat("w", store.MaxWorkerName),
				Error:  strings.Repeat("x", store.MaxFailureText),
			}}, store.MaxFailures)
		}, nil, nil},
		{"too many failures", func(i *store.Info) {
			i.Failures = slices.Repeat([]store.Failure{{Time: at, Attempt: 1}}, store.MaxFailures+1)
		}, store.ErrInvalid, []string{"6 failures", "5"}},
		{"failure without a time", func(i *store.Info) {
			i.Failures = []store.Failure{{Attempt: 1}}
		}, store.ErrInvalid, []string{"time of a failure", "missing"}},
		{"failure of a late time", func(i *store.Info) {
			i.Failures = []store.Failure{{Attempt: 1, Time: late}}
		}, store.ErrInvalid, []string{"time of a failure", "2200", "2199"}},
		{"failure of a negative attempt", func(i *store.Info) {
			i.Failures = []store.Failure{{Time: at, Attempt: -1}}
		}, store.ErrInvalid, []string{"attempt of a failure", "-1", "0"}},
		{"failure of a negative duration", func(i *store.Info) {
			i.Failures = []store.Failure{{Time: at, Attempt: 1, Duration: -1}}
		}, store.ErrInvalid, []string{"duration of a failure", "-1ns"}},
		{"failure with lines", func(i *store.Info) {
			i.Failures = []store.Failure{{Time: at, Attempt: 1, Error: "a\nb"}}
		}, store.ErrInvalid, []string{"error of a failure", "one line", "256"}},
		{"failure of a worker with a control character", func(i *store.Info) {
			i.Failures = []store.Failure{{Time: at, Attempt: 1, Worker: "a\x1fb"}}
		}, store.ErrInvalid, []string{"worker of a failure", "128"}},
		{"no state", func(i *store.Info) { i.State = "" }, store.ErrInvalid, []string{"state", `""`, "leased"}},
		{"unknown state", func(i *store.Info) { i.State = "asleep" }, store.ErrInvalid, []string{"state", `"asleep"`}},
		{"ready with a dead reason", func(i *store.Info) {
			i.DeadReason = store.DeadFailed
		}, store.ErrInvalid, []string{"dead reason", "failed", "ready"}},
		{"ready with a time of death", func(i *store.Info) {
			i.DiedAt = at
		}, store.ErrInvalid, []string{"time of death", "ready"}},
		{"dead for no reason", func(i *store.Info) {
			dead(i)
			i.DeadReason = ""
		}, store.ErrInvalid, []string{"dead reason", `""`, "lease_expired"}},
		{"dead for an unknown reason", func(i *store.Info) {
			dead(i)
			i.DeadReason = "age"
		}, store.ErrInvalid, []string{"dead reason", `"age"`, "buried"}},
		{"dead without a time", func(i *store.Info) {
			dead(i)
			i.DiedAt = time.Time{}
		}, store.ErrInvalid, []string{"time of death", "missing"}},
		{"dead at a time too far", func(i *store.Info) {
			dead(i)
			i.DiedAt = late
		}, store.ErrInvalid, []string{"time of death", "2200", "2199"}},
	} {
		i := store.Info{Message: store.Message{ID: "m"}, State: store.StateReady, Due: at}
		c.change(&i)
		checkError(t, c.name, i.Check(), c.kind, c.words...)
	}
}

func TestSizeCountsPayloadHeadersAndRawBytes(t *testing.T) {
	headers := map[string]string{"ab": "cde", "f": ""}
	i := store.Info{
		Message: store.Message{ID: "m", Payload: make([]byte, 10), Headers: headers},
		Raw:     make([]byte, 100),
	}
	if got := i.Size(); got != 116 {
		t.Errorf("Size() = %d, want 116", got)
	}
}

func TestSameDetectsEveryChange(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000)
	fresh := func() store.Info {
		return store.Info{
			Message: store.Message{
				ID: "m", Payload: []byte("p"), Headers: map[string]string{"k": "v"}, MaxAttempts: 5,
				Timeout:     time.Second,
				ExpireAfter: time.Hour, DedupWindow: time.Minute, SentAt: at,
			},
			State: store.StateScheduled, Due: at, Attempts: 2, LastError: "no",
			Failures: []store.Failure{{Time: at, Attempt: 2, Duration: time.Second, Worker: "w", Error: "no"}},
		}
	}
	a := fresh()
	for n, change := range []func(i *store.Info){
		func(i *store.Info) { i.State = store.StateReady },
		func(i *store.Info) { i.State, i.LeaseDeadline = store.StateLeased, at },
		func(i *store.Info) { i.Due = at.Add(-time.Nanosecond) }, // rounds up to the same millisecond
		func(i *store.Info) { i.Timeout -= time.Nanosecond },
		func(i *store.Info) { i.Due = at.UTC() },
	} {
		b := fresh()
		if change(&b); !a.Same(&b) || !a.SameMessage(&b) {
			t.Errorf("irrelevant change %d counts as a change", n)
		}
	}
	for n, change := range []func(i *store.Info){
		func(i *store.Info) { i.Due = at.Add(time.Millisecond) },
		func(i *store.Info) { i.Attempts++ },
		func(i *store.Info) { i.Delivered = true },
		func(i *store.Info) { i.LastError = "" },
		func(i *store.Info) { i.Failures = nil },
		func(i *store.Info) { i.Failures[0].Time = at.Add(time.Second) },
		func(i *store.Info) { i.Failures[0].Attempt++ },
		func(i *store.Info) { i.Failures[0].Duration++ },
		func(i *store.Info) { i.Failures[0].Worker = "" },
		func(i *store.Info) { i.Failures[0].Error = "" },
		func(i *store.Info) { i.State, i.DeadReason = store.StateDead, store.DeadFailed },
		func(i *store.Info) { i.DiedAt = at },
	} {
		b := fresh()
		if change(&b); a.Same(&b) || !a.SameMessage(&b) {
			t.Errorf("change %d of the condition is missed, or counts as a change of the message", n)
		}
	}
	for n, change := range []func(i *store.Info){
		func(i *store.Info) { i.ID = "n" },
		func(i *store.Info) { i.Payload = nil },
		func(i *store.Info) { i.Headers = map[string]string{"k": "w"} },
		func(i *store.Info) { i.Headers = nil },
		func(i *store.Info) { i.MaxAttempts = 0 },
		func(i *store.Info) { i.Timeout = 0 },
		func(i *store.Info) { i.ExpireAfter = 0 },
		func(i *store.Info) { i.ExpireAt = at },
		func(i *store.Info) { i.DedupWindow = 0 },
		func(i *store.Info) { i.SentAt = time.Time{} },
		func(i *store.Info) { i.Raw = []byte{} },
	} {
		b := fresh()
		if change(&b); a.Same(&b) || a.SameMessage(&b) {
			t.Errorf("change %d of the message is missed", n)
		}
	}
	empty, bytes := store.Info{Raw: []byte{}}, store.Info{Raw: []byte("x")}
	if empty.Same(&bytes) || !bytes.Same(&store.Info{Raw: []byte("x")}) {
		t.Error("raw bytes are not compared")
	}
}
