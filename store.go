package later

import "github.com/laterq/later/store"

// Store returns the client's engine, for tools that work below the client, such as package migrate. The
// engine does not check its input: call the Check functions of package store first. Do not close the
// engine. Close closes it if Open opened it, and does not wait for calls made through Store.
func (c *Client) Store() store.Store { return c.store }
