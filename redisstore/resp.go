package redisstore

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

// The parts of the Redis protocol, RESP2 and RESP3, that calls of scripts need.

// maxReplyBytes and maxReplyDepth limit a reply. A claim of a few messages has the longest, and lists in its list.
const (
	maxReplyBytes = 4 * store.MaxBatchBytes
	maxReplyDepth = 4
)

var errLongReply = fmt.Errorf("a reply of the server is longer than %d bytes", maxReplyBytes)

// replyError is an error that the server replied with.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError makes it an error of the kind that go-redis returns, see redis.Error.
func (replyError) RedisError() {}

// appendCommand appends a command to b, with arguments of the types that scripts are called with.
func appendCommand(b []byte, args []any) ([]byte, error) {
	b = appendHead(b, '*', len(args))
	for _, arg := range args {
		switch v := arg.(type) {
		case string:
			b = appendBulk(b, v)
		case *string:
			b = appendBulk(b, *v)
		case []byte:
			b = appendBulk(b, v)
		case int:
			b = appendInt(b, int64(v))
		case int64:
			b = appendInt(b, v)
		case bool:
			n := int64(0)
			if v {
				n = 1
			}
			b = appendInt(b, n)
		default:
			return nil, fmt.Errorf("an argument of a script is a %T", v)
		}
	}
	return b, nil
}

// appendHead appends the line before the parts of a list or the bytes of a text.
func appendHead(b []byte, kind byte, n int) []byte {
	return append(strconv.AppendInt(append(b, kind), int64(n), 10), '\r', '\n')
}

func appendBulk[T string | []byte](b []byte, text T) []byte {
	return append(append(appendHead(b, '$', len(text)), text...), '\r', '\n')
}

func appendInt(b []byte, n int64) []byte {
	var digits [20]byte
	return appendBulk(b, strconv.AppendInt(digits[:0], n, 10))
}

// replyReader reads one reply.
type replyReader struct {
	in   *bufio.Reader
	left int // bytes of maxReplyBytes that are left
}

// readReply returns a reply as go-redis does: an int64, a string or a []any of them, of nil and of errors. A nil alone
// is redis.Nil. An error that is not a redis.Error leaves the connection in an unknown state. Pushes, which a server
// sends for other reasons, are skipped.
func readReply(in *bufio.Reader) (any, error) {
	for {
		r := replyReader{in, maxReplyBytes}
		kind, v, err := r.value(0)
		if err != nil {
			return nil, err
		}
		if kind == '>' {
			continue
		}
		if refused, ok := v.(replyError); ok {
			return nil, refused
		}
		if v == nil {
			return nil, redis.Nil
		}
		return v, nil
	}
}

// value reads one value inside as many lists as depth says. An error of the server is a value.
func (r *replyReader) value(depth int) (kind byte, v any, err error) {
	line, err := r.line()
	if err != nil {
		return 0, nil, err
	}
	switch kind, text := line[0], line[1:]; kind {
	case '+':
		return kind, string(text), nil
	case '-':
		return kind, replyError(text), nil
	case '_':
		return kind, nil, nil
	case ':', '$', '*', '>':
		n, err := strconv.ParseInt(unsafe.String(unsafe.SliceData(text), len(text)), 10, 64)
		switch {
		case err != nil:
		case kind == ':':
			return kind, n, nil
		case n == -1:
			return kind, nil, nil
		case n < 0:
		case n > int64(r.left):
			return 0, nil, errLongReply
		case kind == '$':
			v, err := r.text(int(n))
			return kind, v, err
		case depth == maxReplyDepth:
			return 0, nil, fmt.Errorf("a reply of the server has more than %d lists in each other", maxReplyDepth)
		default:
			v, err := r.list(int(n), depth+1)
			return kind, v, err
		}
	}
	return 0, nil, fmt.Errorf("the server sent %.40q, which is no reply to a script", line)
}

// line reads a line, and returns it without its end. It is valid until the next read.
func (r *replyReader) line() ([]byte, error) {
	line, err := r.in.ReadSlice('\n')
	n := len(line) - 2
	if err != nil && err != bufio.ErrBufferFull {
		return nil, cut(err, len(line))
	}
	if r.left -= len(line); r.left < 0 {
		return nil, errLongReply
	}
	if err != nil || n < 1 || line[n] != '\r' {
		return nil, fmt.Errorf("the server sent %.40q, which is no line of a reply", line)
	}
	return line[:n], nil
}

// text reads n bytes and the end of their line.
func (r *replyReader) text(n int) (string, error) {
	b := make([]byte, n+2)
	if m, err := io.ReadFull(r.in, b); err != nil {
		return "", cut(err, m)
	}
	r.left -= len(b)
	if b[n] != '\r' || b[n+1] != '\n' {
		return "", fmt.Errorf("a text of %d bytes in a reply of the server ends with %q", n, b[n:])
	}
	return unsafe.String(unsafe.SliceData(b), n), nil
}

// list reads n values. Their number is not trusted before they have come.
func (r *replyReader) list(n, depth int) ([]any, error) {
	list := make([]any, 0, min(n, 64))
	for range n {
		_, v, err := r.value(depth)
		if err != nil {
			return nil, cut(err, 1)
		}
		list = append(list, v)
	}
	return list, nil
}

// cut returns the error of a connection that ended after n bytes of something.
func cut(err error, n int) error {
	if err == io.EOF && n > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}
