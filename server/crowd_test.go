package server

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestACrowdIsWokenAFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c crowd
		var all []*listener
		for range 3*wokenAtOnce - 1 {
			l := c.join()
			l.listen()
			l.listen()
			all = append(all, l)
		}
		all[1].leave()
		woken := func() (n int) {
			for _, l := range all {
				select {
				case <-l.C:
					n++
				default:
				}
			}
			return n
		}
		if n := woken(); n != 0 {
			t.Errorf("%d were woken before there were news", n)
		}
		c.beat()
		if n := woken(); n != wokenAtOnce {
			t.Errorf("%d were woken at once, want %d", n, wokenAtOnce)
		}
		all[0].listen() // after these news
		time.Sleep(time.Second)
		synctest.Wait()
		if n := woken(); n != 2*wokenAtOnce-2 {
			t.Errorf("%d were woken then, want %d", n, 2*wokenAtOnce-2)
		}
		c.beat()
		if n := woken(); n != 1 || len(c.listening) != 0 || c.waking {
			t.Errorf("%d were woken by the next news, want 1", n)
		}
		for _, l := range all {
			l.leave()
		}
	})
}
