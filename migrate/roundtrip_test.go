package migrate

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laterq/later"
	"github.com/laterq/later/diskstore"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/internal/wire/wiretest"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/redisstore"
	"github.com/laterq/later/store"
)

// engines returns a client of each engine, by name.
func engines(t *testing.T) (names []string, clients map[string]*later.Client) {
	disk, err := diskstore.Open(t.TempDir(), diskstore.SyncEvery(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { disk.Close() })
	prefix := strconv.FormatUint(rand.Uint64(), 36) + ":"
	rdb := redisstore.New(redistest.Shared(t).Client(t), redisstore.Prefix(prefix))
	t.Cleanup(func() { rdb.Close() })
	return []string{"mem", "disk", "redis"}, map[string]*later.Client{
		"mem": newClient(t, memstore.New()), "disk": newClient(t, disk), "redis": newClient(t, rdb),
	}
}

func TestExportIsImportedAsItWasByEveryEngine(t *testing.T) {
	names, clients := engines(t)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		queues := []string{fmt.Sprintf("a%d", n), fmt.Sprintf("größe 🙂 %d", n)}
		source := clients[rapid.SampledFrom(names).Draw(t, "source")]
		for _, queue := range queues {
			var infos []store.Info
			for i := range rapid.IntRange(0, 8).Draw(t, "messages") {
				info := wiretest.Info(fmt.Sprint("id", i)).Draw(t, "message")
				if len(info.Raw) > 0 {
					info.Raw[0] = 0xff // else it may be a message that engines can read
				}
				infos = append(infos, info)
			}
			restore(t, source, queue, infos)
			if leased := rapid.IntRange(0, 2).Draw(t, "leased"); leased > 0 {
				if _, err := source.Store().Claim(context.Background(), queue,
					store.ClaimRequest{Max: leased, Lease: time.Hour}); err != nil {
					t.Fatal(err)
				}
			}
		}
		queues = slices.DeleteFunc(queues, func(queue string) bool {
			stats, err := source.Store().Stats(context.Background(), queue)
			if err != nil {
				t.Fatal(err)
			}
			return !stats.Exists
		})
		if len(queues) == 0 {
			return
		}
		file := exported(t, source, queues...)
		for _, target := range clients {
			if target == source {
				continue
			}
			for range 2 { // the second time all are duplicates
				imported(t, target, bytes.NewReader(file))
				for _, queue := range queues {
					sameContents(t, target, source, queue)
				}
			}
		}
		for _, c := range clients {
			for _, queue := range queues {
				if err := c.Store().Delete(context.Background(), queue); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func TestExportOfManyPagesIsWhole(t *testing.T) {
	names, clients := engines(t)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			source, target := clients[name], newMem(t)
			fill(t, source, "q", 1200)
			file := exported(t, source, "q")
			if r := imported(t, target, bytes.NewReader(file)); r.Imported != 3602 || r.Duplicates != 0 ||
				r.NextLine != 3605 {
				t.Errorf("got %+v", r)
			}
			sameContents(t, target, source, "q")
			// Resumed anywhere, every engine lists the rest by time and no more.
			lines := bytes.SplitAfter(file, []byte("\n"))
			for _, cut := range []int{1, 2, 3, 4, 700, 1203, 1204, 2402, 2403, 2404, 2500, 3602, 3603} {
				resumed(t, source, file, bytes.Join(lines[:cut], nil))
			}
		})
	}
}

// resumed resumes a cut export, which must then have the same messages as the whole one, in any order.
func resumed(t failer, source *later.Client, whole, cut []byte) {
	t.Helper()
	p, err := ReadPosition(bytes.NewReader(cut))
	if err != nil {
		t.Fatalf("%v in %.100q", err, cut)
	}
	b := bytes.NewBuffer(slices.Clone(cut[:p.Size]))
	if r, err := Export(context.Background(), source, b, ExportConfig{Resume: p}); err != nil || !r.Complete {
		t.Fatalf("export: %v, %+v", err, r)
	}
	sameLines(t, b.Bytes(), whole)
}

// sameLines compares the lines of two exports but their headers.
func sameLines(t failer, got, want []byte) {
	t.Helper()
	sorted := func(b []byte) []string {
		lines := strings.Split(string(b), "\n")[1:]
		slices.Sort(lines)
		return lines
	}
	if g, w := sorted(got), sorted(want); !slices.Equal(g, w) {
		t.Fatalf("the export has %d lines that are not the %d of the whole one", len(g), len(w))
	}
}
