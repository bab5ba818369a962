package later

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWorkerLogsFailuresAndDeathsAtTheirLevels(t *testing.T) {
	for name, test := range map[string]struct {
		cfg          WorkerConfig
		level        slog.Level // of the logger
		failed, dead string     // the logged texts; "" for nothing
	}{
		"defaults": {WorkerConfig{}, slog.LevelInfo, "", "level=WARN"},
		"debug":    {WorkerConfig{}, slog.LevelDebug, "level=DEBUG", "level=WARN"},
		"configured": {
			WorkerConfig{FailureLevel: slog.LevelInfo, DeathLevel: slog.LevelError}, slog.LevelInfo, "level=INFO", "level=ERROR",
		},
		"quiet": {WorkerConfig{DeathLevel: slog.LevelDebug}, slog.LevelInfo, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *Client) {
				var logged lockedBuffer
				cfg := test.cfg
				cfg.Backoff = ConstantBackoff(time.Minute)
				cfg.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: test.level}))
				w := NewWorker(c, cfg)
				w.Handle("q", func(_ context.Context, m *Message) error {
					if m.ID == "buried" {
						return Bury(errors.New("hopeless"))
					}
					return errors.New("no luck")
				})
				q := c.Queue("q")
				mustSend(t, q, "", WithID("fails"), MaxAttempts(2))
				mustSend(t, q, "", WithID("buried"))
				mustSend(t, q, "", WithID("expires"), ExpireAfter(time.Second))
				time.Sleep(time.Minute) // before the worker starts, so that one has expired
				stop := start(t, w)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if err := stop(); err != nil {
					t.Error(err)
				}
				text := logged.String()
				for _, want := range []struct{ level, text string }{
					{test.failed, `msg="later: an attempt failed" queue=q id=fails attempt=1 of=2 again_in=1m0s error="no luck"`},
					{test.dead, `msg="later: a message is dead" queue=q id=fails attempt=2 of=2 error="no luck"`},
					{test.dead, `msg="later: a message is dead" queue=q id=buried attempt=1 of=20 error=hopeless`},
					{test.dead, `msg="later: messages are dead, expired or out of attempts" queue=q messages=1 first=expires`},
				} {
					n, missing := strings.Count(text, want.text), !strings.Contains(text, want.level+" "+want.text)
					if want.level == "" && n != 0 || want.level != "" && (n != 1 || missing) {
						t.Errorf("want %q once at %q in\n%s", want.text, want.level, text)
					}
				}
			})
		})
	}
}

func TestWorkerFailureLevelCanChangeWhileItRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		var logged lockedBuffer
		level := new(slog.LevelVar)
		level.Set(slog.LevelDebug)
		w := NewWorker(c, WorkerConfig{
			FailureLevel: level, Backoff: ConstantBackoff(time.Minute), Logger: slog.New(slog.NewTextHandler(&logged, nil)),
		})
		w.Handle("q", func(context.Context, *Message) error { return errors.New("no luck") })
		start(t, w)
		mustSend(t, c.Queue("q"), "")
		synctest.Wait()
		level.Set(slog.LevelInfo)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := strings.Count(logged.String(), "an attempt failed"); n != 1 {
			t.Errorf("%d of two failures are logged, want the second: %s", n, logged.String())
		}
	})
}
