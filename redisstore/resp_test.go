package redisstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/redis/go-redis/v9"
)

func replyOf(r io.Reader) (any, error) { return readReply(bufio.NewReaderSize(r, lineBuffer)) }

// A reply is the same in one piece and cut into two anywhere. Without its end there is none.
func TestRepliesAreReadInAnyPieces(t *testing.T) {
	for text, want := range map[string]any{
		":0\r\n":                            int64(0),
		":-12\r\n":                          int64(-12),
		"+OK\r\n":                           "OK",
		"$0\r\n\r\n":                        "",
		"$6\r\na\r\nb:1\r\n":                "a\r\nb:1",
		"*0\r\n":                            []any{},
		"$-1\r\n":                           redis.Nil,
		"*-1\r\n":                           redis.Nil,
		"_\r\n":                             redis.Nil,
		"-OOM command\r\n":                  replyError("OOM command"),
		"*3\r\n:1\r\n$-1\r\n_\r\n":          []any{int64(1), nil, nil},
		"*2\r\n*1\r\n$1\r\nx\r\n-ERR y\r\n": []any{[]any{"x"}, replyError("ERR y")},
		">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n>0\r\n:7\r\n":   int64(7),
		"*1\r\n$5000\r\n" + strings.Repeat("z", 5000) + "\r\n": []any{strings.Repeat("z", 5000)},
	} {
		for i := range len(text) + 1 {
			got, err := replyOf(io.MultiReader(strings.NewReader(text[:i]), strings.NewReader(text[i:])))
			if err != nil {
				got = err
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%.60q in pieces at %d: %v, want %v", text, i, got, want)
			}
			if i == len(text) {
				break
			}
			if got, err := replyOf(strings.NewReader(text[:i])); err != io.EOF && err != io.ErrUnexpectedEOF {
				t.Errorf("%.60q cut at %d: %v, %v", text, i, got, err)
			}
		}
	}
}

func TestRepliesThatAreNoneAreRefused(t *testing.T) {
	mebibyte := "$1048576\r\n" + strings.Repeat("z", 1<<20) + "\r\n"
	for text, want := range map[string]string{
		"HTTP/1.1 400 Bad Request\r\n":           "no reply",
		"\r\n":                                   "no line",
		":1\n":                                   "no line",
		":\r\n":                                  "no reply",
		":1x\r\n":                                "no reply",
		":9223372036854775808\r\n":               "no reply",
		"$-2\r\n":                                "no reply",
		"*-2\r\n":                                "no reply",
		",1.5\r\n":                               "no reply",
		"%1\r\n+a\r\n+b\r\n":                     "no reply",
		"$2\r\nabc\r\n":                          "ends with",
		"+" + strings.Repeat("a", lineBuffer):    "no line",
		"$16777217\r\n":                          "longer than",
		"*16777217\r\n":                          "longer than",
		"*17\r\n" + strings.Repeat(mebibyte, 17): "longer than",
		"*16777000\r\n" + strings.Repeat(":1\r\n", 1<<22):    "longer than",
		strings.Repeat("*1\r\n", maxReplyDepth+1) + ":1\r\n": "lists in each other",
	} {
		got, err := replyOf(strings.NewReader(text))
		var refused redis.Error
		if err == nil || !strings.Contains(err.Error(), want) || errors.As(err, &refused) {
			t.Errorf("%.60q: %v, %v, want an error with %q", text, got, err, want)
		}
	}
	if got, err := replyOf(strings.NewReader(strings.Repeat("*1\r\n", maxReplyDepth) + ":1\r\n")); err != nil {
		t.Errorf("%d lists in each other: %v, %v", maxReplyDepth, got, err)
	}
	failed := errors.New("failed")
	if _, err := replyOf(iotest.ErrReader(failed)); err != failed {
		t.Errorf("a read that fails: %v", err)
	}
}

func TestCommandsAreWrittenAsTheProtocolSays(t *testing.T) {
	text := "two"
	got, err := appendCommand([]byte("x"), []any{"one\r\n", &text, []byte("3"), -4, int64(1) << 40, true, false, ""})
	want := "x*8\r\n$5\r\none\r\n\r\n$3\r\ntwo\r\n$1\r\n3\r\n$2\r\n-4\r\n" +
		"$13\r\n1099511627776\r\n$1\r\n1\r\n$1\r\n0\r\n$0\r\n\r\n"
	if string(got) != want || err != nil {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if got, err := appendCommand(nil, []any{1.5}); err == nil {
		t.Errorf("%q for an argument of another type", got)
	}
}

// An error of a server on a line is of the same kind as the one that go-redis makes of it.
func TestErrorsOnLinesAreOfTheKindsOfGoRedis(t *testing.T) {
	for _, text := range []string{"OOM command not allowed", "NOSCRIPT No matching script", "MOVED 1 127.0.0.1:1",
		"ASK 1 127.0.0.1:1", "READONLY You can't write", "LOADING Redis is loading", "TRYAGAIN Multiple keys",
		"CLUSTERDOWN Hash slot not served", "MASTERDOWN Link with MASTER", "BUSY Redis is busy", "NOREPLICAS Not enough",
		"NOAUTH Authentication required.", "NOPERM this user", "ERR max number of clients reached", "ERR unknown command",
		"WRONGTYPE Operation against", "MISCONF Redis is configured", "UNKILLABLE Sorry", "ERR user_script:1: oops"} {
		of := dialText(t, "-"+text+"\r\n")
		theirs := of.Do(t.Context(), "EVALSHA").Err()
		_, ours := replyOf(strings.NewReader("-" + text + "\r\n"))
		for _, f := range []func(err error) error{
			func(err error) error { return err },
			func(err error) error { return fmt.Errorf("wrapped: %w", err) },
		} {
			kind, again := classify(f(ours))
			wantKind, wantAgain := classify(f(theirs))
			if ours.Error() != text || kind != wantKind || again != wantAgain ||
				mayHaveExecuted(f(ours)) != mayHaveExecuted(f(theirs)) {
				t.Errorf("%q: %v and %v, want %v and %v", ours, kind, again, wantKind, wantAgain)
			}
		}
	}
}

// dialText returns a client of a server that answers commands with a text, but HELLO with an error.
func dialText(t *testing.T, text string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{DisableIdentity: true, MaxRetries: -1, PoolSize: 1,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer server.Close()
				in := bufio.NewReaderSize(server, lineBuffer)
				for first := true; ; first = false {
					if _, err := readReply(in); err != nil { // a command is a list of texts, as a reply may be
						return
					}
					reply := text
					if first {
						reply = "-ERR unknown command 'HELLO'\r\n"
					}
					if _, err := io.WriteString(server, reply); err != nil {
						return
					}
				}
			}()
			return client, nil
		}})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}
