//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/laterq/later/remotestore"
	"github.com/laterq/later/store"
)

// directoryOf returns the directory of the embedded store of a run.
func directoryOf(dir string) string { return filepath.Join(dir, "store") }

func directoryURL(dir string) string { return "file://" + directoryOf(dir) }

// serverKind is the role of the process that serves a store to the others.
const serverKind = "server"

// startRemote starts a server of a store behind a proxy.
func (v *servers) startRemote(ctx context.Context, dir, url string, seed uint64) error {
	p, err := newProxy(seed)
	if err != nil {
		return err
	}
	v.proxies = append(v.proxies, p)
	v.url = "http://" + p.addr()
	v.process = &child{role: role{Kind: serverKind, Actor: serverKind, Dir: dir, URL: url}}
	return v.startProcess(ctx)
}

// startProcess starts the next generation of the server, and returns when new connections lead to it.
func (v *servers) startProcess(ctx context.Context) error {
	if err := v.process.start(); err != nil {
		return err
	}
	return v.connectTo(ctx, v.process)
}

// connectTo has new connections lead to a server, once it listens.
func (v *servers) connectTo(ctx context.Context, server *child) error {
	file := server.role.addressFile(server.actor())
	return within(ctx, 30*time.Second, "start of the server", func(context.Context) error {
		addr, err := os.ReadFile(file)
		if err != nil {
			return errors.Join(err, errors.New(lastLine(server.role.Dir, server.actor())))
		}
		v.proxies[0].setTarget(string(addr))
		return nil
	})
}

// useOtherServer has new connections lead to a second server of the same store, and to the first one the next time.
func (v *servers) useOtherServer(ctx context.Context) error {
	if v.second == nil {
		first := v.process.role
		first.Actor = "second-" + first.Actor
		v.second = &child{role: first}
		if err := v.second.start(); err != nil {
			return err
		}
	}
	v.process, v.second = v.second, v.process
	return v.connectTo(ctx, v.process)
}

// addressFile returns the file for the address of a generation of the server.
func (r role) addressFile(actor string) string { return filepath.Join(r.Dir, actor+".address") }

// serve serves a store until ctx is done.
func (r role) serve(ctx context.Context, s store.Store, log *slog.Logger) error {
	handler, err := remotestore.NewHandler(s, log)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	defer context.AfterFunc(ctx, func() {
		handler.Close()
		server.Close()
	})()
	file := r.addressFile(r.Actor)
	if err := os.WriteFile(file+".new", []byte(listener.Addr().String()), 0o600); err != nil {
		return err
	}
	if err := os.Rename(file+".new", file); err != nil {
		return err
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// disruptHolder kills the process that has the directory open, or freezes it every third time.
func disruptHolder(ctx context.Context, r *run) error {
	holder, err := r.holder(ctx)
	if err != nil {
		return err
	}
	if r.injected%3 == 0 {
		r.stop(ctx, holder, r.upTo(time.Second))
		return nil
	}
	r.log("server-kill")
	r.kill(holder)
	r.log("serves", 0, allQueues) // another process takes over at once
	sleep(ctx, r.upTo(time.Second))
	return holder.start()
}

// holder returns the process that has the directory open.
func (r *run) holder(ctx context.Context) (holder *child, err error) {
	err = within(ctx, 30*time.Second, "holder of the directory", func(context.Context) error {
		text, err := os.ReadFile(filepath.Join(directoryOf(r.dir), "HOLDER"))
		if err != nil {
			return err
		}
		fields := strings.Fields(string(text)) // "process 123 ..."
		if len(fields) < 2 {
			return fmt.Errorf("the holder is %q", text)
		}
		pid, err := strconv.Atoi(fields[1])
		if err != nil {
			return err
		}
		i := slices.IndexFunc(r.children, func(c *child) bool { return c.alive() && c.cmd.Process.Pid == pid })
		if i < 0 {
			return fmt.Errorf("the holder is %q, which has died", text)
		}
		holder = r.children[i]
		return nil
	})
	return holder, err
}

// disruptRemote disrupts the process that serves the store or the network, in turn.
func disruptRemote(ctx context.Context, r *run) error {
	switch r.injected % 7 {
	case 1:
		return killServing(ctx, r)
	case 2:
		r.log("half-open")
		r.servers.proxies[0].halfOpen(0.5)
	case 3:
		return loseReplies(ctx, r)
	case 4:
		r.withConditions(ctx, "silence", conditions{silent: true})
	case 5:
		return delayRequests(ctx, r)
	case 6:
		return freezeServing(ctx, r)
	default:
		r.withConditions(ctx, "slow-readers", conditions{bytesPerSecond: 50 << 10})
	}
	return nil
}

// killServing kills the process that serves the store, and starts the next one after up to a second.
func killServing(ctx context.Context, r *run) error {
	r.log("server-kill")
	r.servers.process.kill()
	sleep(ctx, r.upTo(time.Second))
	err := r.servers.startProcess(ctx)
	r.log("serves", 0, allQueues)
	return err
}

// freezeServing suspends the process that serves the store for up to two seconds.
func freezeServing(ctx context.Context, r *run) error {
	r.log("freeze-server")
	r.servers.process.signal(syscall.SIGSTOP)
	sleep(ctx, r.upTo(2*time.Second))
	r.servers.process.signal(syscall.SIGCONT)
	r.log("serves", 0, allQueues)
	return nil
}
