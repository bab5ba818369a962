package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// inClient calls f with a client, and closes the client: only one process at a time can open an embedded store.
func inClient(t *testing.T, url string, f func(c *later.Client)) {
	t.Helper()
	c, err := later.Open(bounded(t), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f(c)
}

// TestConsumerKilledAtAnyPointSendsEachFollowUpOnce kills consumers whose handlers return follow-ups, both on a single
// server, where the step of the ack writes the follow-ups, and in a Cluster, where they are sent before the ack.
func TestConsumerKilledAtAnyPointSendsEachFollowUpOnce(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"redis":    redistest.Shared(t).URL(),
		"cluster":  redistest.SharedCluster(t).URL(),
		"embedded": "file://" + filepath.ToSlash(t.TempDir()) + "/store",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const messages, rounds = 200, 4
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			orders, mail := newQueueName(t), newQueueName(t)
			j := newJournal()
			for round := range rounds {
				msgs := make([]later.Outgoing, messages)
				for i := range msgs {
					msgs[i] = later.Outgoing{ID: fmt.Sprint(round, "-", i), Payload: []byte(doThen + mail)}
				}
				inClient(t, url, func(c *later.Client) { sendBatch(t, c.Queue(orders), msgs) })
				victim := fmt.Sprint("victim", round)
				role := consumer{URL: url, Queues: []string{orders}, Concurrency: 8, Lease: time.Second}
				c := startConsumer(t, j, victim, role)
				j.await(t, 1+random.IntN(messages/2), event{From: victim, Kind: later.EventAcked})
				c.kill()
			}
			inClient(t, url, func(c *later.Client) {
				count := func(queue string) later.Stats {
					s, err := c.Queue(queue).Stats(bounded(t))
					if err != nil {
						t.Fatal(err)
					}
					return s
				}
				for s := count(orders); s.Ready+s.Leased > 0; s = count(orders) {
					d := receive(t, c.Queue(orders), 1)[0]
					if err := d.AckThen(bounded(t), later.Then(mail, nil)); err != nil {
						t.Fatal(err)
					}
				}
				if s := count(mail); s.Ready != rounds*messages || s.Scheduled+s.Leased+s.Dead != 0 {
					t.Errorf("there are %d follow-ups of %d messages", s.Ready, rounds*messages)
				}
			})
		})
	}
}
