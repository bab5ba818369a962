#!/bin/sh
# Sends a message with curl, receives it and acks it. Start a server with: later serve
# LATER_URL is its address, and LATER_TOKEN a token, if it wants one.
set -eu
url=${LATER_URL:-http://127.0.0.1:7600}
queue=curl-reminders

later() { # METHOD PATH [BODY]; without --path-as-is curl would take . and .. out of the path
  if [ -n "${LATER_TOKEN:-}" ]; then
    curl --path-as-is --fail-with-body -sS -X "$1" -H "Authorization: Bearer $LATER_TOKEN" \
      -H 'Content-Type: application/json' ${3:+-d "$3"} "$url$2"
  else
    curl --path-as-is --fail-with-body -sS -X "$1" -H 'Content-Type: application/json' ${3:+-d "$3"} "$url$2"
  fi
}

later POST "/v1/queues/$queue/messages" '{"payload": "water the plants", "in": "100ms"}'

# Waits for up to 20 seconds. A worker would do this in a loop.
got=$(later POST "/v1/queues/$queue/receive" '{"max": 1, "lease": "30s", "wait": "20s"}')
echo "$got"
token=$(printf '%s' "$got" | sed -n 's/.*"token":"\([^"]*\)".*/\1/p')

later POST "/v1/leases/$token/ack"
echo "done"
