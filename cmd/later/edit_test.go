//go:build unix

package main

import "testing"

func TestEditChangesOnlyWhatIsGiven(t *testing.T) {
	inStores(t, func(t *testing.T, c *cli) {
		c.ok("send", "orders", "one", "--id", "a", "--in", "1h", "--header", "kind=x", "--header", "trace=1", "--group",
			"g", "--key", "k")
		before := object(t, c.ok("get", "orders", "a", "--json"))
		if got := c.ok("edit", "orders", "a", "two"); got != "edited a\n" {
			t.Errorf("edit printed %q", got)
		}
		got := object(t, c.ok("get", "orders", "a", "--json"))
		if got["payload_text"] != "two" || got["due"] != before["due"] || got["group"] != "g" || got["key"] != "k" ||
			len(got["headers"].(map[string]any)) != 2 {
			t.Errorf("%v", got)
		}
		edited := object(t, c.ok("edit", "orders", "a", "--header", "kind=y", "--remove-header", "trace", "--at",
			"2100-01-01T00:00:00Z", "--json"))
		if edited["id"] != "a" || edited["queue"] != "orders" {
			t.Errorf("edit printed %v", edited)
		}
		got = object(t, c.ok("get", "orders", "a", "--json"))
		headers := got["headers"].(map[string]any)
		if got["payload_text"] != "two" || got["due"] != "2100-01-01T00:00:00.000Z" || len(headers) != 1 ||
			headers["kind"] != "y" {
			t.Errorf("%v", got)
		}
		r := c.runWith(t.Context(), "from stdin\n", "edit", "orders", "a", "-", "--in", "2h")
		if r.exit != 0 || object(t, c.ok("get", "orders", "a", "--json"))["payload_text"] != "from stdin\n" {
			t.Errorf("exit %d: %s", r.exit, r.stderr)
		}
		contains(t, c.fails(11, "edit", "orders", "b", "x"), `"b"`)
		contains(t, c.fails(11, "edit", "nope", "a", "x"), `no queue "nope"`)
	})
}
