package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
)

// makesOrWaits are the operations that do not need the queue, topic or schedule of their path: they create it, or wait
// for it.
var makesOrWaits = map[string]bool{
	"sendMessage": true, "sendMessages": true, "sendSeries": true, "publishMessage": true, "publishMessages": true,
	"receiveMessages": true, "pauseQueue": true, "resumeQueue": true, "setDeadRetention": true, "setFlow": true,
	"setShards":       true,
	"configureTopic":  true,
	"putSubscription": true, "putSchedule": true,
}

func TestWhatDoesNotExistIsNotFound(t *testing.T) {
	a := newAPI(t)
	bodies := map[string]string{
		"editMessage": `{"in": "1h"}`, "rescheduleGroup": `{"in": "1h"}`, "moveSeries": `{"until": "2100-01-01T00:00:00Z"}`,
		"purgeQueue": `{"all": true}`, "startBulkChange": `{"filter": {"state": "dead"}, "action": "replay"}`,
		"rewindTopic":      `{"queue": "none", "from": "2000-01-01T00:00:00Z"}`,
		"setKeyFlow":       `{"weight": 2}`,
		"backfillSchedule": `{"from": "2000-01-01T00:00:00Z", "to": "2000-01-02T00:00:00Z"}`,
	}
	n := 0
	operationsOf(a.server.api.OpenAPI(), func(op *huma.Operation) {
		if !strings.Contains(op.Path, "{") || strings.Contains(op.Path, "{token}") || makesOrWaits[op.OperationID] {
			return
		}
		path := strings.NewReplacer("{queue}", "none", "{id}", "none", "{group}", "none", "{topic}", "none", "{schedule}",
			"none", "{key}", "none", "{operation}", "none", "{name}", "none").Replace(op.Path)
		if op.OperationID == "getHorizon" {
			path += "?from=2030-01-01T00:00:00Z&to=2030-01-02T00:00:00Z"
		}
		a.do(op.Method, path, bodies[op.OperationID]).fails(http.StatusNotFound, "not_found", "")
		n++
	})
	if n < 35 {
		t.Errorf("only %d operations", n)
	}
}
