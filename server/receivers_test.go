package server

import (
	"fmt"
	"testing"

	"github.com/laterq/later"
)

// With as many queues as are listed, a request for another one is not counted, and does not count down.
func TestReceiversBeyondTheBoundDoNotCount(t *testing.T) {
	rs := &receivers{queues: map[string]*receivedFrom{}}
	for i := range maxReceivers {
		rs.queues[fmt.Sprint("q", i)] = &receivedFrom{}
	}
	end := rs.begin(nil, []later.ReceiveQueue{{Name: "new"}, {Name: "q1"}})
	delete(rs.queues, "q0")
	endSecond := rs.begin(nil, []later.ReceiveQueue{{Name: "new"}})
	end()
	if n := rs.queues["new"].waiting; n != 1 {
		t.Errorf("%d requests wait", n)
	}
	endSecond()
	if rs.queues["new"].waiting != 0 || rs.queues["q1"].waiting != 0 {
		t.Error("some are left")
	}
}
