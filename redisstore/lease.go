package redisstore

import (
	"iter"
	"strconv"
	"strings"
	"time"
)

// leaseLine is a message in the text of a lease, see lua/_lease.lua.
type leaseLine struct {
	id         string
	due        time.Time
	epoch      int64
	start, end int // of the line in the text, including its line end
}

// leaseLines iterates over the messages in the text of a lease, in order.
func leaseLines(text string) iter.Seq[leaseLine] {
	return func(yield func(leaseLine) bool) {
		var due time.Time
		for at := 0; at < len(text); {
			line := text[at:]
			if n := strings.IndexByte(line, '\n'); n >= 0 {
				line = line[:n]
			}
			l := leaseLine{due: due, start: at, end: min(at+len(line)+1, len(text))}
			at = l.end
			switch {
			case line == "":
				continue
			case line[0] == '\t':
				due = parseMillis(line[1:])
				continue
			}
			id, rest, unusual := strings.Cut(line, "\t")
			l.id = id
			if unusual {
				epoch, _, _ := strings.Cut(rest, "\t")
				l.epoch, _ = strconv.ParseInt(epoch, 10, 64)
			}
			if !yield(l) {
				return
			}
		}
	}
}

// fenceIn returns the fence in the text of a lease, or 0 if it has none; see lua/_slots.lua.
func fenceIn(text string) int64 {
	for _, start := range []string{"\n\t*", "\t#"} {
		rest, ok := strings.CutPrefix(text, start)
		if !ok {
			return 0
		}
		_, text, _ = strings.Cut(rest, "\n")
	}
	line, ok := strings.CutPrefix(text, "\t!")
	if !ok {
		return 0
	}
	line, _, _ = strings.Cut(line, "\n")
	fence, _ := strconv.ParseInt(line, 10, 64)
	return fence
}
