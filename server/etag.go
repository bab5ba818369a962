package server

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// Preconditions limit the versions that a PUT may replace (RFC 9110). The store checks them in the step that makes the
// change.
type Preconditions struct {
	IfMatch     []string `header:"If-Match" doc:"Replace only what has this ETag, or * for anything that exists; otherwise 412"`
	IfNoneMatch []string `header:"If-None-Match" doc:"*: replace nothing; otherwise 412"`
}

// Resolve reads the headers, which huma would split at commas that tags may have.
func (p *Preconditions) Resolve(ctx huma.Context) []error {
	r, _ := humago.Unwrap(ctx)
	p.IfMatch, p.IfNoneMatch = tagsOf(r.Header["If-Match"]), tagsOf(r.Header["If-None-Match"])
	for name, tags := range map[string][]string{"If-Match": p.IfMatch, "If-None-Match": p.IfNoneMatch} {
		if r.Header[name] != nil && len(tags) == 0 { // an empty variable must not replace changes of other senders
			return []error{&huma.ErrorDetail{Location: "header." + name, Message: "is empty: give a value, or omit it"}}
		}
		for _, tag := range tags {
			if tag != "*" && (name == "If-None-Match" || len(tag) < 3 || tag[0] != '"' || tag[len(tag)-1] != '"') {
				want := `the ETag of a reply, in its quotes, or *`
				if name == "If-None-Match" {
					want = "*"
				}
				return []error{&huma.ErrorDetail{Location: "header." + name, Message: fmt.Sprintf("is %.80q: give %s", tag, want)}}
			}
		}
	}
	return nil
}

func tagsOf(values []string) (tags []string) {
	for _, value := range values {
		for tag := range strings.SplitSeq(value, ",") {
			if tag = strings.TrimSpace(tag); tag != "" {
				tags = append(tags, tag)
			}
		}
	}
	return tags
}

// condition returns a function that reports whether a version may be replaced, or nil without preconditions.
func (p *Preconditions) condition() func(version string) bool {
	if len(p.IfMatch)+len(p.IfNoneMatch) == 0 {
		return nil
	}
	return p.allow
}

// allow reports whether a version may be replaced; "" means that there is none.
func (p *Preconditions) allow(version string) bool {
	if len(p.IfNoneMatch) > 0 && version != "" {
		return false
	}
	for _, tag := range p.IfMatch {
		if version != "" && (tag == "*" || tag == etagOf(version)) {
			return true
		}
	}
	return len(p.IfMatch) == 0
}

// refusePreconditions refuses a request with a precondition that its route does not check. Its sender would otherwise
// believe that the request can only change the version that the sender has read.
func refusePreconditions(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	if name := precondition(r); name != "" {
		problem.Write(w, 0, field("header."+name, store.Invalid("is for a PUT of a schedule, topic, subscription, "+
			"flow or dead-retention: leave it out of this request")))
		return
	}
	next(ctx)
}

// precondition returns the name of a header of a request that is a precondition, or "".
func precondition(r *http.Request) string {
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if r.Header[name] != nil {
			return name
		}
	}
	return ""
}

// refused returns the error of a change under these preconditions.
func (p *Preconditions) refused(err error) error {
	if p.condition() != nil && errors.Is(err, store.ErrConflict) {
		return &problem.Error{Status: http.StatusPreconditionFailed, Err: err}
	}
	return err
}

// etagOf returns the ETag of a version.
func etagOf(version string) string { return `"` + version + `"` }

// bodyTag returns the ETag of a body. It is a weak ETag, because the body may be sent compressed or not, and because
// If-Match takes only the strong ETags of versions.
func bodyTag(body []byte) string {
	sum := sha256.Sum256(body)
	return `W/"` + base64.RawURLEncoding.EncodeToString(sum[:15]) + `"`
}

// tag sets the ETag of a reply to a GET if the body has times that change although nothing else does. The ETag ignores
// these times.
func (w *replyWriter) tag(body any) {
	r, to := humago.Unwrap(w.humaContext)
	if still := withoutClock(body); still != nil && r.Method == http.MethodGet {
		text, _ := json.Marshal(still) // numbers and texts can always be encoded
		to.Header().Set("ETag", bodyTag(text))
	}
}

// withoutClock returns a copy of a body without the times at which the store was read, or nil for a body without such
// times.
func withoutClock(body any) any {
	switch b := body.(type) {
	case wire.Stats:
		b.Now = ""
		return b
	case Page[wire.Stats]:
		b.Items = each(b.Items, func(q *wire.Stats) { q.Now = "" })
		return b
	case Page[wire.Worker]:
		b.Items = each(b.Items, func(worker *wire.Worker) {
			worker.Now = ""
			worker.Held = each(worker.Held, func(h *wire.Held) { h.HeldFor = 0 })
		})
		return b
	case *Overview:
		still := *b
		still.Time, still.Took = "", 0
		still.Bands = each(b.Bands, func(band *OverviewBand) { band.From, band.To = "", "" })
		still.Queues = each(b.Queues, func(q *OverviewQueue) {
			q.setRates(1) // the seconds that have passed change all the time
		})
		return still
	case wire.Activity:
		b.Now = "" // the windows begin anew every 10 s, with other parts
		return b
	}
	return nil
}

// each returns a copy of items that were changed.
func each[T any](items []T, change func(*T)) []T {
	items = slices.Clone(items)
	for i := range items {
		change(&items[i])
	}
	return items
}

// hasTag reports whether If-None-Match has the ETag of a body, or * for any. The ETag of a version does not match:
// parts of the body that are not in the version can have changed.
func hasTag(values []string, tag string) bool {
	strong, weak := strings.CutPrefix(tag, "W/")
	return weak && slices.ContainsFunc(tagsOf(values), func(one string) bool {
		return one == "*" || one == tag || one == strong
	})
}
