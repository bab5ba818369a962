package redistest

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// StartReplica starts a replica of primary and returns when it is in sync. It is killed when the test ends.
func StartReplica(t testing.TB, primary *Server, opts ...Option) *Server {
	t.Helper()
	opts = append([]Option{
		Binary(primary.config.binary), Args("--replicaof", primary.host+" "+fmt.Sprint(primary.port)),
	}, opts...)
	replica := Start(t, opts...)
	rdb := primary.Client(t)
	err := eventually("sync of the replica", func(ctx context.Context) error {
		info, err := rdb.Info(ctx, "replication").Result()
		if err != nil {
			return err
		}
		for line := range strings.SplitSeq(info, "\r\n") {
			online := fmt.Sprintf("port=%d,state=online", replica.port)
			if strings.HasPrefix(line, "slave") && strings.Contains(line, online) {
				return nil
			}
		}
		return fmt.Errorf("the primary reports: %s", info)
	})
	if err != nil {
		t.Fatal(err)
	}
	return replica
}

// Freeze suspends the server with SIGSTOP: its connections stay open but it does not reply. Thaw, or the end of the
// test, must follow.
func (s *Server) Freeze(t testing.TB) { s.signal(t, sigFreeze) }

// Thaw resumes a frozen server.
func (s *Server) Thaw(t testing.TB) { s.signal(t, sigThaw) }

func (s *Server) signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := s.process.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}
