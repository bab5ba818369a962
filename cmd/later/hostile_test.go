package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/migrate"
)

// Replies to several of the requests of hostileSenders.
const (
	noCaller = "401 unauthenticated this server must know who you are: give a token as Authorization: Bearer TOKEN, or " +
		"in a store URL as https://:TOKEN@host"
	badAuthorization = "401 unauthenticated the header Authorization cannot be read: give a token as " +
		"Authorization: Bearer TOKEN, or in a store URL as https://:TOKEN@host"
)

// hostileSenders are requests to later serve with access control. TOKEN stands for the token of a lease in the queue
// other.
var hostileSenders = []struct{ name, request, want string }{
	{"nobody", head("GET /v1/topics"),
		noCaller},
	{"a guessed token", head("GET /v1/topics", by("guess")),
		"401 unauthenticated the token is not one of this server's: later token new makes one"},
	{"an empty token", head("GET /v1/topics", "Authorization: Bearer"),
		"401 unauthenticated the token is not one of this server's: later token new makes one"},
	{"a token in a query", head("GET /v1/topics?token=adm&access_token=adm"),
		noCaller},
	{"a scheme of nobody", head("GET /v1/topics", "Authorization: Digest adm"),
		badAuthorization},
	{"a user and password that are no base64", head("GET /v1/topics", "Authorization: Basic ann:adm"),
		badAuthorization},
	{"two tokens, of which the first is right", head("GET /v1/topics", by("adm"), by("guess")),
		"401 unauthenticated the header Authorization is there twice: give it once"},
	{"a token and a user", head("GET /v1/topics", by("adm"), "Authorization: Basic YW5uOnB3"),
		"401 unauthenticated the header Authorization is there twice: give it once"},
	{"two tokens in a header", head("GET /v1/topics", by("adm, Bearer guess")),
		"401 unauthenticated the token is not one of this server's: later token new makes one"},
	{"a token with a NUL", head("GET /v1/topics", by("adm\x00")),
		"400 400 Bad Request"},
	{"a cookie that was made up", head("GET /v1/topics", "Cookie: later_login=AAAA"),
		"401 unauthenticated the login is over: log in again"},
	{"two cookies", head("GET /v1/topics", "Cookie: later_login=AAAA; later_login=BBBB", "Cookie: later_login=CCCC"),
		"401 unauthenticated the login is over: log in again"},
	{"a user by the word of no proxy", head("GET /v1/topics", "X-Forwarded-User: adm", "X-Forwarded-Groups: admins"),
		noCaller},
	{"a token for another host", "GET /v1/topics HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n" +
		by("adm") + "\r\n\r\n",
		hostRefused("evil.example")},
	{"a token from a page of another site", with("{}", "POST /v1/queues/mine/pause", by("adm"), isJSON,
		"Origin: https://evil.example"),
		crossOrigin},
	{"the file of the page by a way around", head("GET /assets/%2e%2e/v1/topics"),
		dotsIn("/assets/../v1/topics", "..")},
	{"a probe by a way around", head("GET /v1/topics/..%2f..%2fhealthz"),
		noCaller},
	{"a login of another site", with(`{"token":"adm"}`, "POST /v1/login", "Content-Type: text/plain",
		"Origin: https://evil.example"),
		crossOrigin},
	{"a login with a token of nobody", with(`{"token":"guess"}`, "POST /v1/login", isJSON),
		"401 unauthenticated the token is not one of this server's"},
	{"a login with two tokens", with(`{"token":"guess","token":"adm"}`, "POST /v1/login", isJSON),
		`400 invalid the body of a login is {"token": "..."}, of 4096 bytes at most body`},
	{"a login with text after it", with(`{"token":"adm"} x`, "POST /v1/login", isJSON),
		`400 invalid the body of a login is {"token": "..."}, of 4096 bytes at most body`},
	{"a login with arrays", with(strings.Repeat("[", 4096), "POST /v1/login", isJSON),
		`400 invalid the body of a login is {"token": "..."}, of 4096 bytes at most body`},
	{"a long login", with(`{"token":"`+strings.Repeat("x", 5000)+`"}`, "POST /v1/login", isJSON),
		`400 invalid the body of a login is {"token": "..."}, of 4096 bytes at most body`},
	{"a login by GET", head("GET /v1/login?token=adm"),
		"405 invalid GET is no method of /v1/login: use POST"},
	{"work on another queue", with("{}", "POST /v1/queues/other/receive", by("wrk"), isJSON),
		`403 forbidden wrk has the role work and may not work on queue "other"`},
	{"work on a topic", with("{}", "POST /v1/queues/topic:mine/receive", by("wrk"), isJSON),
		`403 forbidden wrk has the role work and may not work on queue "topic:mine"`},
	{"work on schedules", with("{}", "POST /v1/queues/schedules:/receive", by("wrk"), isJSON),
		`403 forbidden wrk has the role work and may not work on queue "schedules:"`},
	{"work by another spelling", with("{}", "POST /v1/queues/MINE/receive", by("wrk"), isJSON),
		`403 forbidden wrk has the role work and may not work on queue "MINE"`},
	{"work by an escaped name", with("{}", "POST /v1/queues/%6fther/receive", by("wrk"), isJSON),
		`403 forbidden wrk has the role work and may not work on queue "other"`},
	{"a slash in a name", with("{}", "POST /v1/queues/mine%2F..%2Fother/receive", by("wrk"), isJSON),
		`403 forbidden wrk has the role work and may not work on queue "mine/../other"`},
	{"a send to another queue", with(`{"payload":"x"}`, "POST /v1/queues/other/messages", by("wrk"), isJSON),
		`403 forbidden wrk has the role work and may not send to queue "other"`},
	{"the message of another queue", head("POST /v1/leases/TOKEN/ack", by("wrk")),
		`403 forbidden wrk has the role work and may not work on queue "other"`},
	{"the list of the queue", head("GET /v1/queues/mine/messages", by("wrk")),
		`403 forbidden wrk has the role work and may not look at queue "mine"`},
	{"the metrics", head("GET /metrics", by("wrk")),
		"403 forbidden wrk has the role work and may not look at this server"},
	{"events of another queue", head("GET /v1/events?queue=mine&queue=other", by("opr")),
		`403 forbidden query.queue: opr has the role operate and may not look at queue "other" query.queue`},
	{"events of schedules", head("GET /v1/events?queue=schedules:", by("opr")),
		`403 forbidden query.queue: opr has the role operate and may not look at queue "schedules:" query.queue`},
	{"a schedule", with(`{"queue":"mine","every":"1h"}`, "PUT /v1/schedules/mine", by("opr"), isJSON),
		"403 forbidden opr has the role operate and may not operate schedules"},
	{"a subscription of another queue", with("{}", "PUT /v1/topics/mine/subscriptions/other", by("opr"), isJSON),
		`403 forbidden opr has the role operate and may not operate queue "other"`},
	{"the history of a topic as a queue", with(`{"all":true}`, "POST /v1/queues/topic-history:mine/purge",
		by("opr"), isJSON), `404 not_found queue "topic-history:mine" does not exist: not found`},
	{"a bulk change of another queue", with(`{"filter":{"state":"leased"},"action":"cancel"}`,
		"POST /v1/queues/other/bulk", by("opr"), isJSON),
		`403 forbidden opr has the role operate and may not operate queue "other"`},
	{"the end of a queue", head("DELETE /v1/queues/mine", by("opr")),
		`403 forbidden opr has the role operate and may not administer queue "mine"`},
	{"an import", with(`{"later_export":2,"queues":["mine"]}`+"\n", "POST /v1/import", by("opr"),
		"Content-Type: application/x-ndjson"),
		"403 forbidden opr has the role operate and may not administer this server"},
	{"the store itself", with("\x00", "POST /v1/store/send", by("opr"), "Content-Type: application/vnd.later.store.v3"),
		"403 forbidden opr has the role operate and may not administer this server"},
	{"hidden payloads by a search", head("GET /v1/queues/other/messages?state=leased&payload=secret", by("red")),
		"403 forbidden a caller who may not see payloads and headers may not search in them either: not permitted"},
	{"hidden headers by a search", head("GET /v1/queues/other/messages?state=leased&header=a%3Db", by("red")),
		"403 forbidden a caller who may not see payloads and headers may not search in them either: not permitted"},
	{"hidden payloads by a comparison", head("GET /v1/queues/other/messages?state=leased&json=a+%3D+1", by("red")),
		"403 forbidden a caller who may not see payloads and headers may not search in them either: not permitted"},
	{"hidden payloads by an export", head("GET /v1/queues/other/export", by("red")),
		"403 forbidden the reply has payloads, which are hidden from you: not permitted"},
}

const webConfig = `
tokens:
  - {name: adm, role: admin, sha256: %s}
  - {name: wrk, role: work, queues: [mine], sha256: %s}
  - {name: opr, role: operate, queues: [mine, "topic:mine"], sha256: %s}
  - {name: red, role: read, hide_payloads: true, sha256: %s}
hosts: [localhost]
`

func by(token string) string { return "Authorization: Bearer " + token }

// serveHere runs later serve in this process on a store in memory, and returns its address and a client of the store.
func serveHere(t *testing.T, args ...string) (address string, client *later.Client) {
	t.Helper()
	url := "mem://" + strings.ToLower(t.Name())
	client, err := later.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	read, write := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer write.Close()
		m := &Main{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: write,
			Env: append(os.Environ(), "LATER_STORE="+url)}
		m.Run(ctx, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...))
	}()
	lines := bufio.NewScanner(read)
	for address == "" && lines.Scan() {
		_, address, _ = strings.Cut(lines.Text(), "at=http://")
	}
	go io.Copy(io.Discard, read)
	t.Cleanup(func() {
		stop()
		<-ended
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return address, client
}

// exchange sends bytes and returns the replies, as hostileRequests has them.
func exchange(t *testing.T, address, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	go io.WriteString(conn, request) // a refused body is not read to its end
	method, _, _ := strings.Cut(request, " ")
	from := bufio.NewReader(conn)
	var replies []string
	for {
		r, err := http.ReadResponse(from, &http.Request{Method: method})
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && len(replies) == 0 {
				replies = append(replies, err.Error())
			}
			return strings.Join(replies, "\n")
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		text := fmt.Sprint(r.StatusCode)
		var p problem.Problem
		switch {
		case r.Header.Get("Set-Cookie") != "":
			text += " a cookie"
		case r.Header.Get("Content-Type") == problem.MediaType && json.Unmarshal(body, &p) == nil &&
			p.Status == r.StatusCode:
			text = strings.TrimSpace(fmt.Sprintf("%s %s %s %s", text, p.Code, p.Detail, p.Field))
		case len(body) > 0:
			text += " " + strings.TrimSpace(string(body))
		}
		replies = append(replies, text)
	}
}

// contents returns all that a store has.
func contents(t *testing.T, client *later.Client) string {
	t.Helper()
	var text bytes.Buffer
	if _, err := migrate.Export(t.Context(), client, &text, migrate.ExportConfig{}); err != nil {
		t.Fatal(err)
	}
	_, messages, _ := strings.Cut(text.String(), "\n") // the first line has the time
	return messages
}

func TestHostileRequestsAreAnsweredExactly(t *testing.T) {
	address, client := serveHere(t)
	if _, err := client.Queue("mail").Send(t.Context(), []byte("x"), later.WithID("taken"),
		later.In(time.Hour)); err != nil {
		t.Fatal(err)
	}
	before := contents(t, client)
	for _, c := range hostileRequests {
		if got := exchange(t, address, c.request); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
		if contents(t, client) != before {
			t.Fatalf("%s: the store was changed", c.name)
		}
	}
}

func TestHostileSendersAreAnsweredExactly(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.yml")
	var sums []any
	for _, token := range []string{"adm", "wrk", "opr", "red"} {
		sums = append(sums, fmt.Sprintf("%x", sha256.Sum256([]byte(token))))
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, webConfig, sums...), 0o600); err != nil {
		t.Fatal(err)
	}
	address, client := serveHere(t, "--web-config", file)
	other := client.Queue("other")
	if _, err := other.Send(t.Context(), []byte("secret"), later.WithID("taken"), later.Header("a", "b")); err != nil {
		t.Fatal(err)
	}
	held, err := other.Receive(t.Context(), 1, later.NoWait(), later.Lease(time.Hour))
	if err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	before := contents(t, client)
	for _, c := range hostileSenders {
		got := exchange(t, address, strings.ReplaceAll(c.request, "TOKEN", held[0].Receipt()))
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
		if contents(t, client) != before {
			t.Fatalf("%s: the store was changed", c.name)
		}
	}
}
