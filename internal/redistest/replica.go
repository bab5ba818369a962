package redistest

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// StartReplica runs a replica of a server and returns when it is in sync. It is killed when the test ends.
func StartReplica(t testing.TB, primary *Server, opts ...Option) *Server {
	t.Helper()
	opts = append([]Option{Binary(primary.config.binary), Args("--replicaof", primary.host+" "+fmt.Sprint(primary.port))}, opts...)
	replica := Start(t, opts...)
	rdb := primary.Client(t)
	err := eventually("the replica's sync", func(ctx context.Context) error {
		info, err := rdb.Info(ctx, "replication").Result()
		if err != nil {
			return err
		}
		for line := range strings.SplitSeq(info, "\r\n") {
			if strings.HasPrefix(line, "slave") && strings.Contains(line, fmt.Sprintf("port=%d,state=online", replica.port)) {
				return nil
			}
		}
		return fmt.Errorf("the primary says: %s", info)
	})
	if err != nil {
		t.Fatal(err)
	}
	return replica
}

// Freeze stops the server without ending it, as SIGSTOP does: its connections stay and nothing answers. It must
// be followed by Thaw or the end of the test.
func (s *Server) Freeze(t testing.TB) { s.signal(t, sigFreeze) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw(t testing.TB) { s.signal(t, sigThaw) }

func (s *Server) signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := s.process.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}
