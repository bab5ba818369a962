package migrate

import (
	"errors"
	"io"

	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// maxSeen is how many ids of each state of a queue an export keeps, to know a message again that it meets in another
// state: the messages that are due first, which change their state first. Other messages that it meets again are
// written twice, and an import ignores the second time.
const maxSeen = 1 << 16

// Position is how far an interrupted export came, as ReadPosition found it. It is for one Export.
type Position struct {
	// Size is the number of bytes up to the end of the last complete line. Cut off the rest, and append.
	Size int64
	// Messages is the number of messages that the export has.
	Messages int64
	// Complete reports whether the export has its end. There is nothing to resume then.
	Complete bool

	queues []string        // that were asked for
	done   map[string]bool // queues that are complete
	last   *place          // in the queue that is not; nil before the first message
}

// place is how far the export of one queue came.
type place struct {
	queue   string
	state   store.State // that is being listed
	again   bool        // leased messages are listed for the second time
	at      int64       // due time, or time of death, of the last message, in milliseconds
	atLast  idSet       // messages of that state and time
	seen    idSet       // messages that may be met again
	counted map[store.State]int
}

type idSet map[string]struct{}

func (s idSet) has(id string) bool {
	_, ok := s[id]
	return ok
}

func newPlace(queue string) *place {
	return &place{queue: queue, atLast: idSet{}, seen: idSet{}, counted: map[store.State]int{}}
}

// note takes down a message that was written.
func (p *place) note(info *store.Info) {
	if info.State != p.state {
		p.again = info.State == store.StateLeased && p.counted[store.StateScheduled]+p.counted[store.StateReady] > 0
		p.state, p.at = info.State, 0
	}
	at := listedBy(info)
	if at != p.at {
		clear(p.atLast)
		p.at = at
	}
	if len(p.atLast) < maxSeen {
		p.atLast[info.ID] = struct{}{}
	}
	if p.counted[info.State]++; p.counted[info.State] <= maxSeen && info.State != store.StateDead {
		p.seen[info.ID] = struct{}{}
	}
}

// listedBy returns the time that orders a message in the list of its state.
func listedBy(info *store.Info) int64 {
	if info.State == store.StateDead {
		return store.UnixMillis(info.DiedAt)
	}
	return store.UnixMillis(info.Due)
}

// has reports whether a message was written before, as far as that is known.
func (p *place) has(id string) bool { return p.seen.has(id) || p.atLast.has(id) }

// ReadPosition reads an export that may be incomplete, and returns where to resume it: ExportConfig.Resume. A last line
// without an end does not count. Input that is empty, or has only a part of a header, is resumed from its start; input
// of something else is ErrInvalid, and an export of an earlier version ErrUnsupported.
func ReadPosition(r io.Reader) (*Position, error) {
	lines := newLineReader(r)
	h, err := lines.readHeader()
	if lines.number == 0 && errors.Is(err, store.ErrInvalid) ||
		lines.number == 1 && !lines.whole && isPartOfHeader(lines.line) {
		return &Position{}, nil
	}
	if err != nil {
		return nil, err
	}
	p := &Position{}
	p.begin(h)
	for {
		p.Size = lines.size
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return p, nil
		}
		if err != nil {
			return nil, atLine(lines.number, err)
		}
		if !lines.whole {
			return p, nil
		}
		if err := p.add(line); err != nil {
			return nil, atLine(lines.number, err)
		}
	}
}

// isPartOfHeader reports whether a line may be the beginning of a header.
func isPartOfHeader(line []byte) bool {
	const begin = `{"later_export":`
	n := min(len(line), len(begin))
	return string(line[:n]) == begin[:n]
}

// begin notes the beginning of an export.
func (p *Position) begin(h header) { *p = Position{queues: h.Queues, done: map[string]bool{}} }

// add takes in a line.
func (p *Position) add(line []byte) error {
	switch kindOf(line) {
	case blankLine:
		return nil
	case limitsLine: // an export that is resumed in the queue writes them again
		_, err := parseLimits(line)
		if err == nil && p.Complete {
			err = store.Invalid("limits follow the end of the export: export to a new file")
		}
		return err
	case headerLine:
		h, err := parseHeader(line)
		if err == nil {
			p.begin(h)
		}
		return err
	case endLine:
		e, err := parseEnd(line)
		if err == nil && e.Messages != p.Messages {
			err = store.Invalid("export has %d messages and its end says %d: export to a new file",
				p.Messages, e.Messages)
		}
		p.Complete = err == nil
		return err
	}
	if p.Complete {
		return store.Invalid("a message follows the end of the export: export to a new file")
	}
	queue, info, err := wire.DecodeMessage(line)
	if err != nil {
		return err
	}
	if p.last == nil || p.last.queue != queue {
		if p.last != nil {
			p.done[p.last.queue] = true
		}
		p.last = newPlace(queue)
	}
	p.last.note(&info)
	p.Messages++
	return nil
}
