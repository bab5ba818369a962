package main

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/laterq/later"
	"github.com/laterq/later/metrics"
)

// demoUI runs a market and its page until a signal ends them, and then removes the market's queues.
func (m *Main) demoUI(ctx context.Context, noOpen bool) error {
	name, source := m.storeName()
	prefix := demoPrefix + strings.ToLower(rand.Text()[:6]) + "-" // others may run a demo in this store, too
	if name == "" || source == sourceDefault {
		name, source, prefix = "mem://", sourceDefault, demoPrefix
	}
	o := serveOptions{listen: defaultListen, anyPort: true}
	control, address, err := m.control(o)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	counts := metrics.New(metrics.Config{})
	client, err := m.openURL(ctx, name, source, later.WithObserver(counts.Observe))
	if err != nil {
		return err
	}
	defer client.Close()
	web, err := m.startWeb(client, counts, control, address, o)
	if err != nil {
		return err
	}
	shop := newMarket(client, prefix)
	if err = shop.open(ctx); err == nil {
		m.showPage(web.url+"/", noOpen)
		err = shop.run(ctx)
	}
	if _, stopped := errors.AsType[*stopError](context.Cause(ctx)); stopped {
		err = nil // whatever call it ended
	}
	cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	return errors.Join(err, web.stop(), shop.remove(cleaning))
}
