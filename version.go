package later

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/laterq/later/store"
)

// versionOf returns the version of what has a text: a short one that is different for another text.
func versionOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:12])
}

// errOtherVersion ends a change that its condition does not allow. It is no ErrConflict, after which a change is tried
// again.
var errOtherVersion = errors.New("another version")

// otherVersion returns the ErrConflict for errOtherVersion.
func otherVersion(what, name string) error {
	return &detail{fmt.Sprintf("%s %q is not the version that is to be replaced: read it again", what, name), ErrConflict}
}

// replace tries to replace what has a name until nobody else changes it between the reading and the change.
func replace(what, name string, try func() error) error {
	for {
		err := try()
		if errors.Is(err, errOtherVersion) {
			return otherVersion(what, name)
		}
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// Version returns a text that is different for another configuration.
func (c TopicConfig) Version() string {
	text, _ := json.Marshal(c) // never fails
	return versionOf(text)
}

// Version returns a text that is different for another filter.
func (s Subscription) Version() string { return versionOf([]byte(s.Where)) }

// ConfigureIf is Configure on a condition: allow is called with the Version of the configuration that would be
// replaced, or "" if the topic does not exist. If it returns false, ConfigureIf returns ErrConflict and changes
// nothing. Nobody can change the topic between the call of allow and the change: allow is then called again. An allow
// of nil allows it always.
func (t *Topic) ConfigureIf(ctx context.Context, cfg TopicConfig, allow func(version string) bool) error {
	if err := cmp.Or(t.invalid, t.queue.old, cfg.check()); err != nil {
		return err
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	return t.call(func() error {
		err := replace("topic", t.name, func() error {
			condition, err := t.allowed(ctx, allow)
			if err != nil {
				return err
			}
			return t.change(ctx, topicConfigName, string(text), condition)
		})
		if err != nil {
			return err
		}
		if cfg.DropUnsubscribed {
			kept := store.Retention{MaxCount: keptUnsubscribed}
			if err := t.client.store.SetDeadRetention(ctx, t.queue.name, kept, nil); err != nil {
				return err
			}
		}
		return t.client.topicsChanged(ctx)
	})
}

// allowed returns the condition of a change of the configuration, nil for none, or errOtherVersion.
func (t *Topic) allowed(ctx context.Context, allow func(version string) bool) (*store.Condition, error) {
	if allow == nil {
		return nil, nil
	}
	state, err := t.load(ctx)
	if err != nil {
		return nil, err
	}
	exists := state.version != ""
	if !exists { // unless it has messages
		stats, err := t.client.store.Stats(ctx, t.queue.name)
		if err != nil {
			return nil, err
		}
		exists = stats.Exists
	}
	version := ""
	if exists {
		version = state.cfg.Version()
	}
	if !allow(version) {
		return nil, errOtherVersion
	}
	return state.unchanged(), nil
}

// SetDeadRetentionIf is SetDeadRetention on a condition: allow is called with the Version of the Retention that would
// be replaced, or "" if the queue does not exist. If it returns false, SetDeadRetentionIf returns ErrConflict and
// changes nothing. Nobody can replace the retention between the call of allow and the change: allow is then called
// again. An allow of nil allows it always.
func (q *Queue) SetDeadRetentionIf(ctx context.Context, r Retention, allow func(version string) bool) error {
	if err := cmp.Or(r.Check(), q.old); err != nil {
		return err
	}
	if err := q.begin(); err != nil {
		return err
	}
	defer q.client.calls.Done()
	return replace("retention of queue", q.name, func() error {
		if allow == nil {
			return q.client.store.SetDeadRetention(ctx, q.name, r, nil)
		}
		stats, err := q.client.store.Stats(ctx, q.name)
		if err != nil {
			return err
		}
		version := ""
		if stats.Exists {
			version = stats.DeadRetention.Version()
		}
		if !allow(version) {
			return errOtherVersion
		}
		return q.client.store.SetDeadRetention(ctx, q.name, r, &stats.DeadRetention)
	})
}
