package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// eventTimeout limits every wait for an event. It is far longer than any needs.
const eventTimeout = time.Minute

// shopTest is a shop that runs, with a Redis of its own. Its orders are cancelled after a few seconds, which pass.
type shopTest struct {
	*testing.T
	shop    *Shop
	rdb     *redis.Client
	partner *fakePartner
	mails   chan string
}

func newShopTest(t *testing.T, remind, cancel time.Duration) *shopTest {
	db, err := openDatabase(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	rdb := redistest.Start(t).Client(t)
	s := &shopTest{t, nil, rdb, &fakePartner{calls: map[string]int{}, inside: map[string]int{}},
		make(chan string, 1000)}
	s.shop, err = New(t.Context(), db, rdb, Config{
		RemindAfter: remind, CancelAfter: cancel, Retry: time.Millisecond, CheckEvery: 10 * time.Millisecond,
		Partner: s.partner, Mail: func(m Mail) { s.mails <- m.Text },
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs the shop until the test ends, or stop is called.
func (s *shopTest) run() (stop func()) {
	s.Helper()
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.shop.Run(ctx, listener) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.Errorf("Run: %v", err)
		}
	})
	s.Cleanup(stop)
	return stop
}

// awaitMail returns the next mail.
func (s *shopTest) awaitMail() string {
	s.Helper()
	select {
	case text := <-s.mails:
		return text
	case <-time.After(eventTimeout):
		s.Fatal("no mail came")
		return ""
	}
}

// awaitCompleted waits until a task has run.
func (s *shopTest) awaitCompleted(queue, id string) {
	s.Helper()
	for begun := time.Now(); time.Since(begun) < eventTimeout; {
		if task, err := s.shop.inspect.GetTaskInfo(queue, id); err == nil && task.State == asynq.TaskStateCompleted {
			return
		}
	}
	s.Fatalf("task %s has not run", id)
}

// fakePartner fails with the given errors, one after another, and then always with the last one.
type fakePartner struct {
	mu     sync.Mutex
	errs   []error
	calls  map[string]int // by order
	inside map[string]int // calls in progress, by customer
	most   int            // the most that were in progress for a customer
}

func (p *fakePartner) Ship(_ context.Context, o Order) error {
	p.enter(o, 1)
	for range 100 { // others could come in
		runtime.Gosched()
	}
	p.enter(o, -1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[o.ID]++
	if len(p.errs) == 0 {
		return nil
	}
	err := p.errs[0]
	p.errs = p.errs[min(1, len(p.errs)-1):]
	return err
}

func (p *fakePartner) enter(o Order, by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inside[o.Customer] += by
	p.most = max(p.most, p.inside[o.Customer])
}

// fail sets the partner's next answers.
func (p *fakePartner) fail(errs ...error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errs = errs
}

func (p *fakePartner) called(id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[id]
}

// request makes a request of the API and returns its answer.
func (s *shopTest) request(method, path, body string) (status int, text string) {
	s.Helper()
	w := httptest.NewRecorder()
	s.shop.API().ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

func (s *shopTest) place(customer string) (id string) {
	s.Helper()
	status, text := s.request("POST", "/orders", fmt.Sprintf(`{"customer": %q, "cents": 1999}`, customer))
	var o Order
	if err := json.Unmarshal([]byte(text), &o); err != nil || status != http.StatusOK || o.ID == "" {
		s.Fatalf("place: %d %s", status, text)
	}
	return o.ID
}

func (s *shopTest) pay(id string) {
	s.Helper()
	if status, text := s.request("POST", "/orders/"+id+"/pay", ""); status != http.StatusOK {
		s.Fatalf("pay: %d %s", status, text)
	}
}

func (s *shopTest) wantState(id, want string) {
	s.Helper()
	if o, err := s.shop.Get(s.Context(), id); err != nil || o.State != want {
		s.Errorf("order is %q, %v; want %s", o.State, err, want)
	}
}

func TestUnpaidOrderIsRemindedAndThenCancelled(t *testing.T) {
	s := newShopTest(t, time.Second, 3*time.Second)
	s.run()
	id := s.place("ann")
	if got := s.awaitMail(); !strings.HasSuffix(got, "please pay") {
		t.Errorf("first mail is %q", got)
	}
	if got := s.awaitMail(); !strings.HasSuffix(got, "was cancelled") {
		t.Errorf("second mail is %q", got)
	}
	s.wantState(id, "cancelled")
	if status, text := s.request("POST", "/orders/"+id+"/pay", ""); status != http.StatusConflict {
		t.Errorf("pay a cancelled order: %d %s", status, text)
	}
}

func TestPaidOrderIsShippedAndItsTasksAreDeleted(t *testing.T) {
	s := newShopTest(t, time.Hour, 2*time.Hour)
	id := s.place("ann")
	if err := s.shop.box.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.run()
	s.pay(id)
	if got := s.awaitMail(); !strings.HasSuffix(got, "is on its way") {
		t.Errorf("mail is %q", got)
	}
	s.wantState(id, "shipped")
	if left, err := s.shop.inspect.ListScheduledTasks(ordersQueue); err != nil || len(left) > 0 {
		t.Errorf("%d tasks of a paid order are left, %v", len(left), err)
	}
}

// TestTasksOfAPaidOrderDoNothing has the payment overtake the outbox.
func TestTasksOfAPaidOrderDoNothing(t *testing.T) {
	s := newShopTest(t, 0, 0)
	o := Order{ID: "o1", Customer: "ann", Cents: 5}
	if err := errors.Join(s.shop.Place(t.Context(), o), s.shop.Pay(t.Context(), o.ID)); err != nil {
		t.Fatal(err)
	}
	s.run()
	if got := s.awaitMail(); !strings.HasSuffix(got, "is on its way") {
		t.Errorf("mail is %q", got)
	}
	s.awaitCompleted(ordersQueue, "remind-o1")
	s.awaitCompleted(ordersQueue, "cancel-o1")
	if len(s.mails) > 0 {
		t.Errorf("mail about a paid order: %q", <-s.mails)
	}
	s.wantState("o1", "shipped")
}

func TestPartnerIsCalledUntilItAnswers(t *testing.T) {
	s := newShopTest(t, time.Hour, 2*time.Hour)
	s.run()
	busy := errors.New("busy")
	s.partner.fail(busy, busy, retryIn{errors.New("come back"), time.Second}, nil)
	id := s.place("ann")
	s.pay(id)
	s.awaitMail()
	s.wantState(id, "shipped")
	if n := s.partner.called(id); n != 4 {
		t.Errorf("the partner was called %d times, want 4", n)
	}
}

func TestOrderThatThePartnerDoesNotTakeIsADeadLetter(t *testing.T) {
	for name, test := range map[string]struct {
		err   error
		calls int
	}{
		"fails": {errors.New("busy"), shipAttempts}, "refuses": {fmt.Errorf("no: %w", asynq.SkipRetry), 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShopTest(t, time.Hour, 2*time.Hour)
			s.run()
			s.partner.fail(test.err)
			id := s.place("ann")
			s.pay(id)
			var text string
			for begun := time.Now(); !strings.Contains(text, "ship-"+id); {
				if time.Since(begun) > eventTimeout {
					t.Fatalf("no dead letter: %s", text)
				}
				_, text = s.request("GET", "/dead", "")
			}
			if n := s.partner.called(id); n != test.calls || !strings.Contains(text, test.err.Error()) {
				t.Errorf("%d calls, dead: %s", n, text)
			}
			s.partner.fail()
			if _, text := s.request("POST", "/dead/ship-"+id+"/replay", ""); !strings.Contains(text, `"replayed":1`) {
				t.Errorf("replay: %s", text)
			}
			s.awaitMail()
			s.wantState(id, "shipped")
		})
	}
}

func TestPartnerSeesOneOrderOfACustomerAtATime(t *testing.T) {
	s := newShopTest(t, time.Hour, 2*time.Hour)
	s.run()
	var ids []string
	for i := range 12 {
		ids = append(ids, s.place(fmt.Sprintf("customer %d", i%2)))
	}
	for _, id := range ids {
		s.pay(id)
	}
	for range ids {
		s.awaitMail()
	}
	for _, id := range ids {
		s.wantState(id, "shipped")
	}
	if s.partner.most != 1 {
		t.Errorf("%d orders of a customer at a time", s.partner.most)
	}
}

func TestTraceOfARequestReachesTheMail(t *testing.T) {
	s := newShopTest(t, 0, time.Hour)
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	r := httptest.NewRequest("POST", "/orders", strings.NewReader(`{"customer": "ann", "cents": 1}`))
	r.Header.Set(traceHeader, trace)
	s.shop.API().ServeHTTP(httptest.NewRecorder(), r)
	stop := s.run()
	s.awaitMail()
	stop()
	mails, err := s.shop.inspect.ListCompletedTasks(mailQueue)
	if err != nil || len(mails) != 1 || mails[0].Headers[traceHeader] != trace {
		t.Errorf("mails are %v, %v", mails, err)
	}
	if _, text := s.request("GET", "/metrics", ""); !strings.Contains(text, `"mail.acked": 1`) {
		t.Errorf("metrics: %s", text)
	}
}

// TestShopDrainsWhenItIsStopped stops the service while the partner is being called.
func TestShopDrainsWhenItIsStopped(t *testing.T) {
	s := newShopTest(t, time.Hour, 2*time.Hour)
	calling, answer := make(chan bool), make(chan bool)
	s.shop.cfg.Partner = partnerFunc(func(context.Context, Order) error {
		calling <- true
		<-answer
		return nil
	})
	stop := s.run()
	id := s.place("ann")
	s.pay(id)
	<-calling
	stopped := make(chan bool)
	go func() {
		stop()
		close(stopped)
	}()
	answer <- true
	<-stopped
	s.wantState(id, "shipped")
}

type partnerFunc func(context.Context, Order) error

func (f partnerFunc) Ship(ctx context.Context, o Order) error { return f(ctx, o) }

// TestTaskIsMovedFromTheOutboxOnce has the process die between the sending of a task and the removal of its row.
func TestTaskIsMovedFromTheOutboxOnce(t *testing.T) {
	s := newShopTest(t, time.Hour, 2*time.Hour)
	id := s.place("ann")
	_, err := s.shop.client.Enqueue(asynq.NewTask(kindRemind, nil), asynq.Queue(ordersQueue),
		asynq.TaskID("remind-"+id), asynq.ProcessIn(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.shop.box.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	tasks, err := s.shop.inspect.ListScheduledTasks(ordersQueue)
	if err != nil || len(tasks) != 2 {
		t.Errorf("%d tasks, %v; want 2", len(tasks), err)
	}
	var rows int
	if err := s.shop.db.QueryRow("SELECT COUNT(*) FROM outbox").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows are left, %v", rows, err)
	}
}

func TestHTTPPartnerSaysWhatToDo(t *testing.T) {
	for status, want := range map[int]string{
		http.StatusCreated:             "ack",
		http.StatusBadRequest:          "dead",
		http.StatusTooManyRequests:     "7s",
		http.StatusInternalServerError: "backoff",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
		}))
		err := HTTPPartner{URL: server.URL}.Ship(t.Context(), Order{ID: "o1"})
		got := "backoff"
		if asked, ok := errors.AsType[retryIn](err); ok {
			got = asked.delay.String()
		} else if errors.Is(err, asynq.SkipRetry) {
			got = "dead"
		} else if err == nil {
			got = "ack"
		}
		if got != want {
			t.Errorf("%d: %s, want %s", status, got, want)
		}
		server.Close()
	}
}
