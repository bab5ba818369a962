package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func (m *Main) tokenCommand() *cobra.Command {
	return m.group("token new", "Make tokens for later serve",
		`A token says who sends a request to later serve, and so decides their rights: its entry in the file of
--web-config has a role. Docs/access.md describes both.`,
		`  later token new --name shop --role send`,
		m.tokenNewCommand())
}

// tokenOptions are the flags of later token new.
type tokenOptions struct {
	name, role   string
	queues       []string
	hidePayloads bool
}

func (m *Main) tokenNewCommand() *cobra.Command {
	var o tokenOptions
	cmd := m.command("new", "Make a token and its entry for the configuration file",
		`New makes a random token and prints it once, with the entry for tokens in the file of later serve
--web-config. The entry has only the hash of the token, so that the token cannot be learned from the file. Nothing is
stored.

Programs send the token as "Authorization: Bearer TOKEN". The command takes it from LATER_TOKEN, and store URLs have it
as https://:TOKEN@HOST.

Roles: read looks at messages, send sends and cancels, work receives and sends, operate looks, sends and manages queues,
and admin does everything, also with the server as a store.`,
		`  later token new --name shop --role send --queue orders --queue 'mail.*'
  later token new --role admin --json | jq -r .token`,
		run(func(context.Context, []string) error { return m.newToken(o) }))
	flags := cmd.Flags()
	flags.StringVar(&o.name, "name", "", "`NAME` in logs (default: the first digits of the hash)")
	flags.StringVar(&o.role, "role", string(access.RoleWork), "`ROLE`: read, send, work, operate or admin")
	flags.StringArrayVar(&o.queues, "queue", nil,
		"limit it to this `QUEUE`, or with a * at the end to all that begin so; can be repeated")
	flags.BoolVar(&o.hidePayloads, "hide-payloads", false, "show no payloads, headers and errors of messages")
	return cmd
}

func (m *Main) newToken(o tokenOptions) error {
	token, hash := access.NewToken()
	who := access.Identity{Name: cmp.Or(o.name, "token-"+hash[:8]), Role: access.Role(o.role), Queues: o.queues,
		HidePayloads: o.hidePayloads}
	if err := who.Check(); err != nil {
		return store.Invalid("the entry of the token: %v", err)
	}
	result := wire.Token{Token: token, Name: who.Name, SHA256: hash, Role: o.role, Queues: o.queues,
		HidePayloads: o.hidePayloads}
	if m.json {
		return m.printJSON(result)
	}
	return m.print("%s\n\nIt is shown this once. For tokens in the file of later serve --web-config:\n\n%s", token,
		tokenEntry(result))
}

// tokenEntry returns the YAML of a token, with texts quoted as in JSON.
func tokenEntry(t wire.Token) string {
	quote := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil { // texts can always be encoded
			panic(err)
		}
		return string(text)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "  - name: %s\n    sha256: %s\n    role: %s\n", quote(t.Name), quote(t.SHA256), t.Role)
	if len(t.Queues) > 0 {
		fmt.Fprintf(&b, "    queues: %s\n", quote(t.Queues))
	}
	if t.HidePayloads {
		b.WriteString("    hide_payloads: true\n")
	}
	return b.String()
}
