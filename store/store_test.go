package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/laterq/later/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCodesAreUnique(t *testing.T) {
	seen := map[store.Code]bool{store.Internal: true}
	for _, kind := range store.Kinds() {
		if seen[kind.Code] || kind.Code == "" || kind.Error() == "" {
			t.Errorf("code %q of %q is used twice, or it or the text is empty", kind.Code, kind)
		}
		seen[kind.Code] = true
	}
}

func TestCodeOfFindsTheKindUnderWraps(t *testing.T) {
	for _, kind := range store.Kinds() {
		wrapped := fmt.Errorf("send to %q: %w", "q", errors.Join(errors.New("other"), kind))
		if got := store.CodeOf(wrapped); got != kind.Code {
			t.Errorf("CodeOf(%v) = %q, want %q", wrapped, got, kind.Code)
		}
	}
	for err, want := range map[error]store.Code{
		errors.New("plain"):      store.Internal,
		context.Canceled:         store.Internal,
		nil:                      store.Internal,
		store.ErrCancelled:       store.ErrLeaseLost.Code,
		store.Invalid("%d", 1):   store.ErrInvalid.Code,
		store.TooLarge("%d", 12): store.ErrTooLarge.Code,
	} {
		if got := store.CodeOf(err); got != want {
			t.Errorf("CodeOf(%v) = %q, want %q", err, got, want)
		}
	}
}

func TestErrorTextDoesNotRepeatItsKind(t *testing.T) {
	err := store.Invalid("delay is %v", "far")
	if err.Error() != "delay is far" || !errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	if !errors.Is(store.ErrCancelled, store.ErrLeaseLost) || errors.Is(store.ErrLeaseLost, store.ErrCancelled) {
		t.Error("want ErrCancelled to be an ErrLeaseLost, and not the reverse")
	}
}

func TestOpenErrorSaysWhatIsWrongWithTheURL(t *testing.T) {
	for url, want := range map[string]string{
		"":                  "no scheme",
		"localhost:6379":    "no scheme",
		"file:///var/later": "diskstore",
		"gopher://x":        "gopher",
	} {
		_, err := store.Open(t.Context(), url, store.OpenConfig{})
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q): %v, want ErrInvalid with %q", url, err, want)
		}
	}
}

// registered makes scheme names unique: a scheme cannot be unregistered, and a test may run more than once.
var registered atomic.Int64

func TestOpenPassesTheURLToItsEngine(t *testing.T) {
	var got string
	refused := errors.New("refused")
	scheme := fmt.Sprintf("test%d", registered.Add(1))
	store.Register(scheme, func(_ context.Context, url string, _ store.OpenConfig) (store.Store, error) {
		got = url
		return nil, refused
	})
	url := scheme + "://a:1,b:2/x?y=z"
	if _, err := store.Open(t.Context(), url, store.OpenConfig{}); !errors.Is(err, refused) || got != url {
		t.Errorf("the opener was called with %q, and Open returned %v", got, err)
	}
	_, err := store.Open(t.Context(), "unknown://", store.OpenConfig{})
	if err == nil || !strings.Contains(err.Error(), scheme) {
		t.Errorf("error %v does not list the known schemes", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a second Register for one scheme does not panic")
		}
	}()
	store.Register(scheme, nil)
}

func TestRedactURLHidesPasswordsOnly(t *testing.T) {
	const sentinel = "redis+sentinel://u:%s@h/m?db=1&sentinel_password=%s&sentinel_username=c"
	for url, want := range map[string]string{
		"redis://localhost:6379/0":             "redis://localhost:6379/0",
		"redis://user@localhost":               "redis://user@localhost",
		"redis://user:secret@localhost:6379/1": "redis://user:xxxxx@localhost:6379/1",
		"redis://:secret@localhost":            "redis://:xxxxx@localhost",
		"redis://:se@cret@localhost":           "redis://:xxxxx@localhost",
		"redis://:se:cret@localhost?db=1":      "redis://:xxxxx@localhost?db=1",
		"redis+cluster://u:secret@a:1,b:2":     "redis+cluster://u:xxxxx@a:1,b:2",
		"redis://u:se/cret?@localhost/0":       "redis://u:xxxxx@localhost/0",
		fmt.Sprintf(sentinel, "a", "b"):        fmt.Sprintf(sentinel, "xxxxx", "xxxxx"),
		"unix://u:secret@/run/redis.sock?db=1": "unix://u:xxxxx@/run/redis.sock?db=1",
		"redis://[::1]:6379/0":                 "redis://[::1]:6379/0",
		"https://:token@h:7600?tls_ca=a":       "https://:xxxxx@h:7600?tls_ca=a",
		"mem://":                               "mem://",
		"unix:///run/redis.sock":               "unix:///run/redis.sock",
		"no url":                               "no url",
	} {
		if got := store.RedactURL(url); got != want {
			t.Errorf("RedactURL(%q) = %q, want %q", url, got, want)
		}
	}
}
