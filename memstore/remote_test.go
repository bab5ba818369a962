package memstore_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/laterq/later/remotestore"
	"github.com/laterq/later/store"
	"github.com/laterq/later/store/storetest"
)

// serve returns the function that opens a store in memory behind the server that begin starts.
func serve(begin func(h http.Handler) *httptest.Server) func(t *testing.T) storetest.Harness {
	return func(t *testing.T) storetest.Harness {
		h := open(t)
		handler, err := remotestore.NewHandler(h.Store, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		server := begin(handler)
		t.Cleanup(server.Close)
		t.Cleanup(handler.Close)
		client := func() *remotestore.Store {
			var config *tls.Config
			if server.TLS != nil {
				trusted := x509.NewCertPool()
				trusted.AddCert(server.Certificate())
				config = &tls.Config{RootCAs: trusted}
			}
			s, err := remotestore.New(server.URL, remotestore.WithTLS(config))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		}
		h.Store, h.Peer = client(), client()
		return h
	}
}

// newTLSServer does not log that a client closes a connection that it began and does not need.
func newTLSServer(h http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	return server
}

func TestConformanceOverTheNetwork(t *testing.T) { storetest.Run(t, serve(httptest.NewServer)) }

func TestServerRefusesNewNamesOfDotsAndServesOldOnes(t *testing.T) {
	h := open(t)
	local := h.Store
	handler, err := remotestore.NewHandler(local, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	t.Cleanup(handler.Close)
	far, err := remotestore.New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	ctx := t.Context()
	dots := func(id string) store.Outgoing { return store.Outgoing{Message: store.Message{ID: id, Group: id}} }
	for _, queue := range []string{"q", "."} {
		if _, err := local.Send(ctx, queue, []store.Outgoing{dots("."), dots("..")}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := far.List(ctx, ".", store.ListRequest{Group: "..", Limit: 10})
	if err != nil || len(page.Messages) != 1 {
		t.Fatal(page, err)
	}
	old, outgoing := page.Messages[0], dots("..")
	to := store.Target{Kind: store.TargetQueue, Name: "."}
	claim, err := far.Claim(ctx, ".", store.ClaimRequest{Max: 1, Lease: time.Minute})
	if err != nil || len(claim.Messages) != 1 {
		t.Fatal(claim, err)
	}
	then := store.Settlement{Receipt: claim.Messages[0].Receipt, Action: store.Ack,
		Then: []store.FollowUp{{Queue: "..", Message: store.Outgoing{Message: store.Message{ID: "next"}}}}}
	move := store.ForwardRequest{To: to, Max: 1}
	for what, call := range map[string]func() error{
		"send of an id": func() error { _, err := far.Send(ctx, "q", []store.Outgoing{outgoing}); return err },
		"send to a queue": func() error {
			_, err := far.Send(ctx, ".", []store.Outgoing{{Message: store.Message{ID: "a"}}})
			return err
		},
		"send of a group": func() error {
			_, err := far.Send(ctx, "q", []store.Outgoing{{Message: store.Message{ID: "a", Group: "."}}})
			return err
		},
		"restore":          func() error { _, err := far.Restore(ctx, "q", []store.Info{old}); return err },
		"follow-up":        func() error { _, err := far.Settle(ctx, ".", []store.Settlement{then}); return err },
		"forward":          func() error { _, err := far.Forward(ctx, "q", move); return err },
		"pause":            func() error { return far.SetPaused(ctx, "..", true) },
		"pause of a topic": func() error { return far.SetPaused(ctx, "topic:..", true) },
		"retention":        func() error { return far.SetDeadRetention(ctx, "..", store.Retention{MaxCount: 1}, nil) },
		"flow":             func() error { return far.SetFlow(ctx, "..", store.Flow{Concurrency: 1}, nil) },
		"flow of a topic":  func() error { return far.SetFlow(ctx, "topic:news", store.Flow{}, nil) },
		"ahead of a claim": func() error {
			_, err := far.Claim(ctx, "q", store.ClaimRequest{Max: 1, Ahead: 2, Lease: time.Minute})
			return err
		},
		"property": func() error { return far.SetProperties(ctx, "..", map[string]string{"a": "b"}, nil) },
		"property of the history": func() error {
			return far.SetProperties(ctx, "topic-history:.", map[string]string{"a": "b"}, nil)
		},
	} {
		if err := call(); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	then.Then = nil
	if results, err := far.Settle(ctx, ".", []store.Settlement{then}); err != nil || results[0].Err != nil {
		t.Error(results, err)
	}
	if results, err := far.Cancel(ctx, "q", store.CancelRequest{IDs: []string{".", ".."}}); err != nil ||
		results[0].Err != nil || results[1].Err != nil {
		t.Error(results, err)
	}
	if removed, err := far.Remove(ctx, ".", []store.Info{old}); err != nil || !removed[0] {
		t.Error(removed, err)
	}
	if err := errors.Join(far.SetPaused(ctx, ".", false), far.SetProperties(ctx, ".", map[string]string{"a": ""}, nil),
		far.Delete(ctx, ".")); err != nil {
		t.Error(err)
	}
}

func TestConformanceOverTLS(t *testing.T) { storetest.Run(t, serve(newTLSServer)) }

func TestStateMachineOverTheNetwork(t *testing.T) {
	if os.Getenv("LATER_LONG") == "" {
		f := flag.Lookup("rapid.checks")
		defer f.Value.Set(f.Value.String())
		f.Value.Set("8") // TestStateMachine runs the same histories, 100 of them
	}
	t.Run("http", func(t *testing.T) { storetest.RunStateMachine(t, serve(httptest.NewServer)) })
	t.Run("https", func(t *testing.T) {
		if os.Getenv("LATER_LONG") == "" {
			t.Skip("the bytes are those of http; LATER_LONG=1 runs it")
		}
		storetest.RunStateMachine(t, serve(newTLSServer))
	})
}
