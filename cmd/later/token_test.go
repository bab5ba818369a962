package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laterq/later/server/access"
)

func TestNewTokenIsAcceptedWithItsEntry(t *testing.T) {
	for _, args := range [][]string{
		{"--name", `shop: "1"`, "--role", "send"},
		{"--name", "shop <a&b> é", "--role", "operate", "--queue", "mail*", "--queue", `o'"\, r`, "--hide-payloads"},
		{},
	} {
		r := runMain(t.Context(), nil, "", append([]string{"token", "new"}, args...)...)
		if strings.Contains(strings.Join(args, " "), `"1"`) {
			if r.exit != 2 || !strings.Contains(r.stderr, "name is") || r.stdout != "" {
				t.Errorf("exit %d: %s", r.exit, r.stderr)
			}
			continue
		}
		if r.exit != 0 {
			t.Fatalf("%q: %s", args, r.stderr)
		}
		token, rest, _ := strings.Cut(r.stdout, "\n")
		_, entry, _ := strings.Cut(rest, "  - name")
		if strings.Contains(rest, token) {
			t.Errorf("the token is shown twice:\n%s", r.stdout)
		}
		file := filepath.Join(t.TempDir(), "web.yml")
		if err := os.WriteFile(file, []byte("tokens:\n  - name"+entry), 0o600); err != nil {
			t.Fatal(err)
		}
		control, err := access.New(access.Config{File: file})
		if err != nil {
			t.Fatalf("%v in\n%s", err, r.stdout)
		}
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		request.Header.Set("Authorization", "Bearer "+token)
		control.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			who, _ := access.FromContext(r.Context())
			if len(args) == 0 {
				if who.Role != access.RoleWork || !strings.HasPrefix(who.Name, "token-") {
					t.Errorf("%+v", who)
				}
				return
			}
			if who.Name != args[1] || string(who.Role) != args[3] || !who.HidePayloads || len(who.Queues) != 2 ||
				who.Queues[1] != args[7] {
				t.Errorf("%+v, want %q", who, args)
			}
		})).ServeHTTP(httptest.NewRecorder(), request)
	}
	got := object(t, runMain(t.Context(), nil, "", "token", "new", "--json", "--name", "x").stdout)
	for _, field := range []string{"token", "name", "sha256", "role"} {
		if got[field] == nil {
			t.Errorf("no %s in %v", field, got)
		}
	}
}

func TestLATERTOKENIsForServersWhoseURLsHaveNoUser(t *testing.T) {
	m := &Main{Env: []string{"LATER_TOKEN=a b\n"}}
	for text, want := range map[string]string{
		"https://h:7600/x?tls_ca=y": "https://:a%20b@h:7600/x?tls_ca=y",
		"http://h":                  "http://:a%20b@h",
		"https://:token@h":          "https://:token@h",
		"https://u:p@h":             "https://u:p@h",
		"redis://h":                 "redis://h",
		"http://%":                  "http://%",
	} {
		if got, err := m.storeURLOf(text); got != want || err != nil {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	if got, _ := (&Main{}).storeURLOf("https://h"); got != "https://h" {
		t.Error(got)
	}
}
