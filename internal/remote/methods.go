package remote

import (
	"context"
	"crypto/rand"
	"path/filepath"
	"sync"
	"time"

	"github.com/laterq/later/internal/codec"
	"github.com/laterq/later/store"
)

var (
	_ store.Store     = (*Client)(nil)
	_ store.Forwarder = (*Client)(nil)
	_ store.Linker    = (*Client)(nil)
	_ store.Syncer    = (*Client)(nil)
	_ store.Pinger    = (*Client)(nil)
	_ store.Placer    = (*Client)(nil)
	_ store.Checker   = (*Client)(nil)
	_ store.Backuper  = (*Client)(nil)
	_ store.Sharder   = (*Client)(nil)
)

// The methods of store.Store and its optional interfaces.

func (c *Client) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	return invoke(ctx, c, opSend, about(queue, msgs))
}

func (c *Client) Claim(ctx context.Context, queue string, req store.ClaimRequest) (store.Claim, error) {
	return invoke(ctx, c, opClaim, about(queue, req))
}

func (c *Client) Settle(ctx context.Context, queue string, s []store.Settlement) ([]store.SettleResult, error) {
	return invoke(ctx, c, opSettle, about(queue, s))
}

func (c *Client) Extend(ctx context.Context, queue string, e []store.Extension) ([]store.ExtendResult, error) {
	return invoke(ctx, c, opExtend, about(queue, e))
}

func (c *Client) Cancel(ctx context.Context, queue string, req store.CancelRequest) ([]store.CancelResult, error) {
	return invoke(ctx, c, opCancel, about(queue, req))
}

func (c *Client) Reschedule(ctx context.Context, queue string, ids []string, due store.Due) ([]error, error) {
	return invoke(ctx, c, opReschedule, aboutWith(queue, ids, due))
}

func (c *Client) Get(ctx context.Context, queue string, ids []string) ([]*store.Info, error) {
	infos := make([]*store.Info, 0, len(ids))
	for left := ids; ; {
		page, err := invoke(ctx, c, opGet, about(queue, left))
		if err != nil {
			return nil, err
		}
		infos, left = append(infos, page...), left[min(len(page), len(left)):]
		if len(left) == 0 {
			return infos, nil
		}
		if len(page) == 0 {
			return nil, misunderstood(codec.ErrMalformed)
		}
	}
}

func (c *Client) List(ctx context.Context, queue string, req store.ListRequest) (store.Page, error) {
	return invoke(ctx, c, opList, about(queue, req))
}

func (c *Client) Restore(ctx context.Context, queue string, msgs []store.Info) ([]store.SendResult, error) {
	return invoke(ctx, c, opRestore, about(queue, msgs))
}

func (c *Client) Remove(ctx context.Context, queue string, msgs []store.Info) ([]bool, error) {
	return invoke(ctx, c, opRemove, about(queue, msgs))
}

func (c *Client) Replay(ctx context.Context, queue string, sel store.Selection, due store.Due) (store.Bulk, error) {
	return invoke(ctx, c, opReplay, aboutWith(queue, sel, due))
}

func (c *Client) Purge(ctx context.Context, queue string, sel store.Selection) (store.Bulk, error) {
	return invoke(ctx, c, opPurge, aboutWith(queue, sel, store.Due{}))
}

func (c *Client) Stats(ctx context.Context, queue string) (store.Stats, error) {
	return invoke(ctx, c, opStats, &queueArgs{queue})
}

func (c *Client) Histogram(ctx context.Context, queue string, bounds []time.Time) ([]int64, error) {
	return invoke(ctx, c, opHistogram, about(queue, bounds))
}

func (c *Client) SetPaused(ctx context.Context, queue string, paused bool) error {
	return invokeOnly(ctx, c, opSetPaused, about(queue, paused))
}

func (c *Client) SetDeadRetention(ctx context.Context, queue string, r store.Retention, former *store.Retention) error {
	return invokeOnly(ctx, c, opSetDeadRetention, aboutWith(queue, r, former))
}

func (c *Client) SetFlow(ctx context.Context, queue string, f store.Flow, former *store.Flow) error {
	return invokeOnly(ctx, c, opSetFlow, aboutWith(queue, f, former))
}

func (c *Client) SetKeyFlow(ctx context.Context, queue, key string, o store.KeyOverride) error {
	return invokeOnly(ctx, c, opSetKeyFlow, aboutWith(queue, key, o))
}

func (c *Client) ResumeKey(ctx context.Context, queue, key string) error {
	return invokeOnly(ctx, c, opResumeKey, about(queue, key))
}

func (c *Client) Keys(ctx context.Context, queue string, req store.KeysRequest) ([]store.KeyState, error) {
	return invoke(ctx, c, opKeys, about(queue, req))
}

func (c *Client) SetProperties(
	ctx context.Context, queue string, set map[string]string, condition *store.Condition,
) error {
	return invokeOnly(ctx, c, opSetProperties, aboutWith(queue, set, condition))
}

func (c *Client) Properties(ctx context.Context, queue string) (map[string]string, error) {
	return invoke(ctx, c, opProperties, &queueArgs{queue})
}

func (c *Client) Queues(ctx context.Context, cursor string) (names []string, next string, err error) {
	page, err := invoke(ctx, c, opQueues, &queuesArgs{cursor})
	return page.Names, page.Next, err
}

func (c *Client) Delete(ctx context.Context, queue string) error {
	return invokeOnly(ctx, c, opDelete, &queueArgs{queue})
}

func (c *Client) Report(ctx context.Context, reports []store.Report) ([]store.ReportResult, error) {
	return invoke(ctx, c, opReport, &reportArgs{reports})
}

func (c *Client) Activity(ctx context.Context, queue string) (store.Activity, error) {
	return invoke(ctx, c, opActivity, &queueArgs{queue})
}

func (c *Client) SetShards(ctx context.Context, queue string, n int) error {
	return invokeOnly(ctx, c, opSetShards, about(queue, n))
}

func (c *Client) Shards(ctx context.Context, queue string) (store.Shards, error) {
	return invoke(ctx, c, opShards, &queueArgs{queue})
}

func (c *Client) Ping(ctx context.Context) error {
	return invokeOnly(ctx, c, opPing, &none{})
}

func (c *Client) Sync(ctx context.Context) error {
	return invokeOnly(ctx, c, opSync, &none{})
}

func (c *Client) Forward(ctx context.Context, queue string, req store.ForwardRequest) (store.Forwarded, error) {
	return invoke(ctx, c, opForward, about(queue, req))
}

func (c *Client) Deliver(ctx context.Context, to store.Target, msgs []store.Claimed) error {
	return invokeOnly(ctx, c, opDeliver, &deliverArgs{to, msgs})
}

// Backup implements store.Backuper. A relative dir is one of this process. When the server ends during a backup, the
// next one starts it again.
func (c *Client) Backup(ctx context.Context, dir string) error {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return store.Invalid("directory %q of a backup: %v", dir, err)
	}
	return invokeOnly(ctx, c, opBackup, &backupArgs{absolute, rand.Text()})
}

// maxAnswers is how many answers that never change a client remembers.
const maxAnswers = 10_000

// answers are answers that never change, by the arguments of their call.
type answers struct {
	mu sync.Mutex
	by map[any]any
}

// answer returns the result of a call that never changes. It asks once.
func answer[A comparable, R any](c *Client, op *operation[A, R], args A) (R, error) {
	c.answers.mu.Lock()
	known, ok := c.answers.by[args].(R)
	c.answers.mu.Unlock()
	if ok {
		return known, nil
	}
	result, err := invoke(context.Background(), c, op, &args)
	if err == nil {
		c.answers.mu.Lock()
		if len(c.answers.by) == 0 || len(c.answers.by) >= maxAnswers {
			c.answers.by = map[any]any{}
		}
		c.answers.by[args] = result
		c.answers.mu.Unlock()
	}
	return result, err
}

// Linked implements store.Linker. It returns false if the store does not answer, which is always allowed.
func (c *Client) Linked(queue, to string) bool {
	linked, _ := answer(c, opLinked, onQueue[string]{queue, to})
	return linked
}

// ForwardsTo implements store.Forwarder. It returns an ErrUnavailable if the store does not answer.
func (c *Client) ForwardsTo(queue string, to store.Target) (bool, error) {
	return answer(c, opForwardsTo, onQueue[store.Target]{queue, to})
}

// SameServer implements store.Placer. It returns false if the store does not answer.
func (c *Client) SameServer(ctx context.Context, queue, other string) bool {
	same, _ := invoke(ctx, c, opSameServer, about(queue, other))
	return same
}
