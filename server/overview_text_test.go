package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/memstore"
)

// seenOverview is what a client has that is sent the changes of an overview.
type seenOverview map[string]json.RawMessage

// take applies an event.
func (s *seenOverview) take(t *testing.T, event string) {
	t.Helper()
	name, data, ok := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(event, "event: "), "\n\n"), "\ndata: ")
	var next seenOverview
	if err := json.Unmarshal([]byte(data), &next); err != nil || !ok {
		t.Fatalf("%q: %v", event, err)
	}
	if name == "changes" {
		queues := (*s).queues(t)
		var gone []string
		if next["gone"] != nil {
			_ = json.Unmarshal(next["gone"], &gone)
		}
		for _, queue := range gone {
			delete(queues, queue)
		}
		maps.Copy(queues, next.queues(t))
		var all []json.RawMessage
		for _, queue := range slices.Sorted(maps.Keys(queues)) {
			all = append(all, queues[queue])
		}
		next["queues"], _ = json.Marshal(all)
		delete(next, "gone")
		if next["runs"] == nil {
			next["runs"] = (*s)["runs"]
		}
	} else if name != "overview" {
		t.Fatal(event)
	}
	*s = next
}

func (s seenOverview) queues(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	var all []json.RawMessage
	if err := json.Unmarshal(s["queues"], &all); err != nil {
		t.Fatal(err)
	}
	queues := map[string]json.RawMessage{}
	for _, text := range all {
		var q struct{ Queue string }
		if err := json.Unmarshal(text, &q); err != nil {
			t.Fatal(err)
		}
		queues[q.Queue] = text
	}
	return queues
}

// A client that is sent changes has the same as one that is sent whole overviews, whichever readings it misses.
func TestChangesOfAnOverviewAreComplete(t *testing.T) {
	for seed := range uint64(9) {
		random := rand.New(rand.NewPCG(seed, 0))
		var text overviewText
		clients, seen := make([]seenOverview, 4), make([]int, 4)
		ready := map[string]int64{}
		for n := range 60 {
			for range random.IntN(4) {
				ready[fmt.Sprintf("q%02d", random.IntN(20))] = random.Int64N(3)
			}
			if random.IntN(3) == 0 {
				delete(ready, fmt.Sprintf("q%02d", random.IntN(20)))
			}
			if random.IntN(30) == 0 {
				ready = map[string]int64{}
			}
			o := &Overview{Time: fmt.Sprint(n), QueueCount: len(ready), Runs: []OverviewRun{}}
			if random.IntN(2) == 0 {
				o.NextDue = "soon" // a field that is left out at other times
			}
			for range random.IntN(2) {
				o.Runs = append(o.Runs, OverviewRun{Schedule: "s"})
			}
			for _, queue := range slices.Sorted(maps.Keys(ready)) {
				o.Queues = append(o.Queues, OverviewQueue{QueueStats: wire.QueueStats{Queue: queue, Ready: ready[queue]}})
			}
			text.set(o)
			var want seenOverview
			want.take(t, string(text.event(0)))
			for i := range clients {
				if random.IntN(i+1) > 0 {
					continue // it is slow
				}
				clients[i].take(t, string(text.event(seen[i])))
				seen[i] = text.reading
				if normal(t, clients[i]) != normal(t, want) {
					t.Fatalf("seed %d, reading %d, client %d has\n%s, want\n%s", seed, n, i, normal(t, clients[i]),
						normal(t, want))
				}
			}
		}
	}
}

// A client is sent a whole overview again only if too many queues are gone to remember them.
func TestQueuesThatAreGoneAreChanges(t *testing.T) {
	var text overviewText
	set := func(queues int) {
		o := &Overview{Queues: make([]OverviewQueue, queues)}
		for i := range o.Queues {
			o.Queues[i].Queue = fmt.Sprintf("q%04d", i)
		}
		text.set(o)
	}
	set(maxGone + 3)
	first := text.reading
	set(maxGone + 2)
	want := fmt.Sprintf(`"gone":["q%04d"]`, maxGone+2)
	event := string(text.event(first))
	if !strings.HasPrefix(event, "event: changes\n") || !strings.Contains(event, want) {
		t.Errorf("%.200s, want %s", event, want)
	}
	set(1)
	if event := string(text.event(first)); !strings.HasPrefix(event, "event: overview\n") {
		t.Errorf("%.200s", event)
	}
}

func normal(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), `"queues":null`, `"queues":[]`)
}

func TestChangesOfAnOverviewHaveOnlyWhatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBubbleAPI(t, memstore.New())
		a.sendDue("still", time.Now().Add(time.Hour))
		a.sendDue("mail", time.Now().Add(time.Hour))
		time.Sleep(10 * time.Minute) // the sends are history
		w := &overviewStream{}
		defer a.watchOverview(w, "?changes=true")()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for i, event := range w.take() {
			if strings.HasPrefix(event, "event: changes\n") != (i > 0) || i > 0 && (strings.Contains(event, "still") ||
				strings.Contains(event, `"runs"`)) {
				t.Errorf("event %d: %s", i, event)
			}
		}
		a.sendDue("mail", time.Now().Add(time.Hour))
		time.Sleep(time.Second)
		synctest.Wait()
		if events := w.take(); !slices.ContainsFunc(events, func(event string) bool {
			return strings.Contains(event, `"queue":"mail","scheduled":2`) && !strings.Contains(event, "still")
		}) {
			t.Errorf("%q", events)
		}
	})
}

// A stream of a store that changes all the time has few bytes. A change through the server is sent at once.
func TestChangesOfAnOverviewTakeFewBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBubbleAPI(t, memstore.New())
		busy := func() {
			for n := range 20 {
				a.sendDue(fmt.Sprintf("queue-%d", n), time.Now())
			}
		}
		busy()
		w := &overviewStream{}
		defer a.watchOverview(w, "?changes=true")()
		for range 300 { // a minute
			busy()
			time.Sleep(200 * time.Millisecond)
		}
		synctest.Wait()
		events := w.take()
		size := len(strings.Join(events[1:], ""))
		most := changesBurst + 60*changesRate + 2*size/len(events)
		if size > most && len(events) > int(time.Minute/maxChangesPause)+3 || len(events) < 20 {
			t.Errorf("%d events have %d bytes in a minute, want %d at most, or an event every 3 s", len(events), size, most)
		}

		time.Sleep(10*time.Millisecond + maxChangesPause)
		synctest.Wait()
		w.take()
		busy()
		a.post(t.Context(), "/v1/queues/queue-7/pause", "{}").is(http.StatusOK)
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		if events := w.take(); len(events) == 0 || !strings.Contains(events[len(events)-1], `"paused":true`) {
			t.Errorf("after a pause, %d events came: %.2000s", len(events), events)
		}
	})
}

// The first event has all queues, so that no later one waits for its bytes, also if the client came before it was read.
func TestChangesOfAnOverviewDoNotWaitForTheFirstEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBubbleAPI(t, memstore.New())
		for n := range 300 {
			a.sendDue(fmt.Sprintf("queue-%d", n), time.Now().Add(time.Hour))
		}
		time.Sleep(10 * time.Minute) // the sends are history
		w := &overviewStream{}
		defer a.watchOverview(w, "?changes=true")()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if events := w.take(); len(events) != 1 || len(events[0]) < changesBurst+changesRate {
			t.Fatalf("%d events came: %.2000s", len(events), events)
		}
		a.sendDue("queue-7", time.Now().Add(time.Hour))
		time.Sleep(minOverviewEvery)
		synctest.Wait()
		if text := strings.Join(w.take(), ""); !strings.Contains(text, `"queue":"queue-7","scheduled":2`) {
			t.Errorf("after a reading, %q came", text)
		}
	})
}

// pace lets a burst through, and then one event in the time that its bytes take.
func TestPaceOfChanges(t *testing.T) {
	var p pace
	now := time.Unix(0, 0)
	if wait := p.spend(1<<20, now); wait != 0 {
		t.Errorf("after the first event: %v", wait)
	}
	for n := range changesBurst / 1024 {
		if wait := p.spend(1024, now); wait != 0 {
			t.Errorf("event %d of the burst: %v", n, wait)
		}
	}
	if wait := p.spend(changesRate, now); wait != time.Second {
		t.Errorf("after the burst: %v, want 1 s", wait)
	}
	now = now.Add(time.Second)
	if wait := p.spend(changesRate/2, now); wait != time.Second/2 {
		t.Errorf("a second later: %v, want 0.5 s", wait)
	}
	if wait := p.spend(1<<20, now); wait != maxChangesPause {
		t.Errorf("after a large event: %v, want %v", wait, maxChangesPause)
	}
	if now = now.Add(time.Hour); p.spend(10, now) != 0 {
		t.Error("an hour later it waits")
	}
}

// A client that takes gzip is sent each event at once, as a part of one gzip file.
func TestOverviewStreamIsCompressed(t *testing.T) {
	a := newAPI(t)
	a.order42()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+"/v1/overview/watch?changes=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept-Encoding", "gzip")
	got, err := a.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if got.Header.Get("Content-Encoding") != "gzip" || !strings.Contains(got.Header.Get("Vary"), "Accept-Encoding") {
		t.Fatalf("%v", got.Header)
	}
	var raw bytes.Buffer
	plain, err := gzip.NewReader(io.TeeReader(got.Body, &raw))
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	for part := make([]byte, 4096); bytes.Count(text, []byte("event: ")) < 4; {
		n, err := plain.Read(part)
		if text = append(text, part[:n]...); err != nil {
			t.Fatalf("%v after %s", err, text)
		}
	}
	if raw.Len() > len(text)/4 {
		t.Errorf("%d bytes are compressed to %d", len(text), raw.Len())
	}
	a.server.Close()
	if rest, err := io.ReadAll(plain); err != nil {
		t.Errorf("the stream ends with %v after %s", err, rest)
	}
}

// A HEAD request of a stream ends, and takes the place of no other.
func TestHeadOfAStreamEnds(t *testing.T) {
	a := newAPI(t)
	for _, path := range []string{"/v1/overview/watch?changes=true", "/v1/events"} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		w := httptest.NewRecorder()
		a.server.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodHead, path, nil))
		if w.Code != http.StatusOK || ctx.Err() != nil {
			t.Errorf("%s: %d, %v", path, w.Code, ctx.Err())
		}
		cancel()
	}
}

func TestFewStreamsAreCompressed(t *testing.T) {
	a := newAPI(t)
	a.server.zipped.Store(maxZipped)
	r := a.watch("/v1/overview/watch", "Accept-Encoding", "gzip")
	if text := r.block() + r.block() + r.block(); !strings.Contains(text, `"bands"`) {
		t.Errorf("%q", text)
	}
	if n := a.server.zipped.Load(); n != maxZipped+1 && n != maxZipped {
		t.Errorf("%d are counted", n)
	}
}

// An overview tells a list that it has to be read again, also if no count has changed.
func TestOverviewCountsTheEventsOfAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBubbleAPI(t, memstore.New())
		w := &overviewStream{}
		defer a.watchOverview(w, "")()
		time.Sleep(time.Second)
		events := func() (n int64) {
			t.Helper()
			var o Overview
			if err := json.Unmarshal([]byte(a.get(t.Context(), "/v1/overview").body), &o); err != nil {
				t.Fatal(err)
			}
			for _, q := range o.Queues {
				n += q.Events
			}
			return n
		}
		q := a.client.Queue("mail")
		for _, id := range []string{"a", "b"} {
			if _, err := q.Send(t.Context(), nil, later.In(time.Hour), later.WithID(id)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Minute) // the sends have left the history
		before := events()
		if err := q.Reschedule(t.Context(), "b", later.In(2*time.Hour)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if after := events(); before != 2 || after != 3 {
			t.Errorf("%d events, and %d after a message was rescheduled", before, after)
		}
	})
}
