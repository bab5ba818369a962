package delayqueue_test

import (
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/compat/delayqueue"
	"github.com/laterq/later/internal/redistest"
)

// This is the first program of the original's README. Only its import line is another.
func Example() {
	server, err := redistest.Run()
	if err != nil {
		panic(err)
	}
	defer server.Remove()

	redisCli := redis.NewClient(&redis.Options{
		Addr: server.Addr(),
	})
	defer redisCli.Close()
	handled := make(chan string)
	queue := delayqueue.NewQueue("example", redisCli, func(payload string) bool {
		handled <- payload
		// true: the message is done; false: deliver it again
		return true
	}).WithConcurrent(4)
	// send delay message
	for i := 0; i < 10; i++ {
		_, err := queue.SendDelayMsgV2(strconv.Itoa(i), time.Hour, delayqueue.WithRetryCount(3))
		if err != nil {
			panic(err)
		}
	}
	// send schedule message
	msg, err := queue.SendScheduleMsgV2("now", time.Now())
	if err != nil {
		panic(err)
	}
	// start consume
	done := queue.StartConsume()
	fmt.Println(<-handled)
	queue.StopConsume()
	<-done

	result, err := queue.TryIntercept(msg)
	if err != nil {
		panic(err)
	}
	pending, err := queue.GetPendingCount()
	if err != nil {
		panic(err)
	}
	fmt.Println(result.Intercepted, pending)
	// Output:
	// now
	// false 10
}
