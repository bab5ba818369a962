package server

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/laterq/later/server/access"
)

func TestEverySenderLearnsWhatTheyMayDo(t *testing.T) {
	a := newAPIWith(t, "mem://", Config{Store: "memory"})
	for role, rights := range map[access.Role]string{
		"":                 "[look get send work operate administer]",
		access.RoleRead:    "[look get]",
		access.RoleSend:    "[get send]",
		access.RoleWork:    "[get send work]",
		access.RoleOperate: "[look get send operate]",
		access.RoleAdmin:   "[look get send work operate administer]",
	} {
		who := a
		if role != "" {
			who = a.as(access.Identity{Name: "ann", Role: role, Queues: []string{"mail"}})
		}
		got := who.do(http.MethodGet, "/v1/server", nil).is(http.StatusOK)
		if fmt.Sprint(got["rights"]) != rights || got["access_control"] != (role != "") || got["store"] != "memory" ||
			got["version"] != "unknown" || got["started"] == nil {
			t.Errorf("%s: %v", role, got)
		}
		if role != "" && (got["who"] != "ann" || got["role"] != string(role) || fmt.Sprint(got["queues"]) != "[mail]") {
			t.Errorf("%s: %v", role, got)
		}
	}
}
