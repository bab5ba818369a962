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

	"github.com/laterq/later"
	"github.com/laterq/later/latertest"
	"github.com/laterq/later/lock"
)

// shopTest is a shop with its real worker, database and outbox, in time that the test moves.
type shopTest struct {
	*testing.T
	*latertest.Harness
	shop    *Shop
	partner *fakePartner
}

func newShopTest(t *testing.T) *shopTest {
	db, err := openDatabase(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	log, metrics := slog.New(slog.NewTextHandler(t.Output(), nil)), NewMetrics()
	lt := latertest.New(t, ClientOptions(log, metrics)...)
	partner := &fakePartner{calls: map[string]int{}, inside: map[string]int{}}
	shop, err := New(t.Context(), db, lt.Client(), Config{
		RemindAfter: 20 * time.Minute, CancelAfter: 30 * time.Minute, Retry: time.Second, Now: lt.Now,
		Partner: partner, Locker: lock.Local(), Metrics: metrics, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	lt.Start(shop.worker)
	return &shopTest{t, lt, shop, partner}
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

// request makes a request of the API and returns its answer.
func (s *shopTest) request(method, path, body string) (status int, text string) {
	s.Helper()
	w := httptest.NewRecorder()
	s.shop.API().ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	if err := s.shop.relay.Flush(s.Context()); err != nil {
		s.Fatal(err)
	}
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

// mails returns the texts of the mails among results.
func mails(results []latertest.Result) (texts []string) {
	for _, r := range results {
		var m Mail
		if r.Message.Queue == mailQueue && json.Unmarshal(r.Message.Payload, &m) == nil {
			texts = append(texts, m.Text)
		}
	}
	return texts
}

func TestUnpaidOrderIsRemindedAndThenCancelled(t *testing.T) {
	s := newShopTest(t)
	id := s.place("ann")
	orders := s.Client().Queue(ordersQueue)
	latertest.RequireScheduled(t, orders, latertest.Kind(kindRemind), latertest.In(20*time.Minute))
	latertest.RequireScheduled(t, orders, latertest.Kind(kindCancel), latertest.In(30*time.Minute),
		latertest.Header(customerHeader, "ann"))

	if got := mails(s.Advance(20 * time.Minute)); len(got) != 1 || !strings.HasSuffix(got[0], "please pay") {
		t.Errorf("after 20 minutes: mails %q", got)
	}
	s.wantState(id, "unpaid")
	if got := mails(s.Advance(10 * time.Minute)); len(got) != 1 || !strings.HasSuffix(got[0], "was cancelled") {
		t.Errorf("after 30 minutes: mails %q", got)
	}
	s.wantState(id, "cancelled")
	if status, text := s.request("POST", "/orders/"+id+"/pay", ""); status != http.StatusConflict {
		t.Errorf("pay a cancelled order: %d %s", status, text)
	}
}

func TestPaidOrderIsShippedAndNeverCancelled(t *testing.T) {
	s := newShopTest(t)
	id := s.place("ann")
	s.Advance(29 * time.Minute)
	s.pay(id)
	latertest.RequireNone(t, s.Client().Queue(ordersQueue))
	if got := mails(s.Advance(24 * time.Hour)); len(got) != 1 || !strings.HasSuffix(got[0], "is on its way") {
		t.Errorf("mails %q", got)
	}
	s.wantState(id, "shipped")
}

// TestMessagesOfAPaidOrderDoNothing has the payment overtake the outbox.
func TestMessagesOfAPaidOrderDoNothing(t *testing.T) {
	s := newShopTest(t)
	o := Order{ID: "o1", Customer: "ann", Cents: 5}
	if err := errors.Join(s.shop.Place(t.Context(), o), s.shop.Pay(t.Context(), o.ID)); err != nil {
		t.Fatal(err)
	}
	if err := s.shop.relay.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	latertest.RequireScheduled(t, s.Client().Queue(ordersQueue), latertest.Kind(kindCancel))
	s.Advance(time.Hour)
	s.wantState("o1", "shipped")
}

func TestPartnerIsCalledUntilItAnswers(t *testing.T) {
	s := newShopTest(t)
	busy := errors.New("busy")
	s.partner.fail(busy, busy, fmt.Errorf("come back: %w", later.RetryIn(30*time.Minute)), nil)
	id := s.place("ann")
	s.pay(id)
	s.Advance(29 * time.Minute)
	s.wantState(id, "paid")
	s.Advance(2 * time.Minute)
	s.wantState(id, "shipped")
	if s.partner.calls[id] != 4 {
		t.Errorf("the partner was called %d times, want 4", s.partner.calls[id])
	}
}

func TestOrderThatThePartnerDoesNotTakeIsADeadLetter(t *testing.T) {
	for name, test := range map[string]struct {
		err   error
		calls int
	}{
		"fails": {errors.New("busy"), shipAttempts}, "refuses": {later.Bury(errors.New("no")), 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShopTest(t)
			s.partner.fail(test.err)
			id := s.place("ann")
			s.pay(id)
			s.Advance(2 * time.Hour)
			dead := latertest.RequireDead(t, s.Client().Queue(partnerQueue), latertest.Header(customerHeader, "ann"))
			if s.partner.calls[id] != test.calls || dead.LastError != test.err.Error() {
				t.Errorf("%d calls, last error %q", s.partner.calls[id], dead.LastError)
			}
			if status, text := s.request("GET", "/dead", ""); status != http.StatusOK ||
				!strings.Contains(text, dead.ID) {
				t.Errorf("dead: %d %s", status, text)
			}
			s.partner.fail()
			if _, text := s.request("POST", "/dead/"+dead.ID+"/replay", ""); !strings.Contains(text, `"replayed":1`) {
				t.Errorf("replay: %s", text)
			}
			s.Advance(0)
			s.wantState(id, "shipped")
		})
	}
}

func TestPartnerSeesOneOrderOfACustomerAtATime(t *testing.T) {
	s := newShopTest(t)
	var ids []string
	for i := range 12 {
		ids = append(ids, s.place(fmt.Sprintf("customer %d", i%2)))
	}
	for _, id := range ids {
		s.pay(id)
	}
	s.Advance(10 * time.Minute)
	for _, id := range ids {
		s.wantState(id, "shipped")
	}
	if s.partner.most != 1 {
		t.Errorf("%d orders of a customer at a time", s.partner.most)
	}
}

func TestTraceOfARequestReachesTheMail(t *testing.T) {
	s := newShopTest(t)
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	r := httptest.NewRequest("POST", "/orders", strings.NewReader(`{"customer": "ann", "cents": 1}`))
	r.Header.Set(traceHeader, trace)
	s.shop.API().ServeHTTP(httptest.NewRecorder(), r)
	if err := s.shop.relay.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, result := range s.Advance(time.Hour) {
		if got := result.Message.Headers[traceHeader]; got != trace {
			t.Errorf("message in queue %s has trace %q", result.Message.Queue, got)
		}
	}
	if _, text := s.request("GET", "/metrics", ""); !strings.Contains(text, `"mail.acked": 2`) {
		t.Errorf("metrics: %s", text)
	}
}

// TestShopDrainsWhenItIsStopped stops the service while the partner is being called.
func TestShopDrainsWhenItIsStopped(t *testing.T) {
	s := newShopTest(t)
	client, err := later.Open(t.Context(), "file://"+t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	calling, answer := make(chan bool), make(chan bool)
	cfg := s.shop.cfg
	cfg.Partner = partnerFunc(func(context.Context, Order) error {
		calling <- true
		<-answer
		return nil
	})
	shop, err := New(t.Context(), s.shop.db, client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- shop.Run(ctx, listener) }()
	o := Order{ID: "o1", Customer: "ann", Cents: 5}
	if err := errors.Join(shop.Place(ctx, o), shop.Pay(ctx, o.ID)); err != nil {
		t.Fatal(err)
	}
	<-calling
	stop()
	answer <- true
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	s.wantState("o1", "shipped")
}

type partnerFunc func(context.Context, Order) error

func (f partnerFunc) Ship(ctx context.Context, o Order) error { return f(ctx, o) }

func TestHTTPPartnerSaysWhatToDo(t *testing.T) {
	for status, want := range map[int]later.Outcome{
		http.StatusCreated:             {Kind: later.EventAcked},
		http.StatusBadRequest:          {Kind: later.EventBuried},
		http.StatusTooManyRequests:     {Kind: later.EventNacked, Delay: 7 * time.Second},
		http.StatusInternalServerError: {Kind: later.EventNacked, Backoff: true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
		}))
		got := later.OutcomeOf(HTTPPartner{URL: server.URL}.Ship(t.Context(), Order{ID: "o1"}))
		if got.Kind != want.Kind || got.Delay != want.Delay || got.Backoff != want.Backoff {
			t.Errorf("%d: %+v, want %+v", status, got, want)
		}
		server.Close()
	}
}
