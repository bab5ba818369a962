"""Sends messages with Python's standard library, and works on them. Start a server with: later serve

LATER_URL is its address, and LATER_TOKEN a token, if it wants one.
"""

import json
import os
import urllib.error
import urllib.parse
import urllib.request

URL = os.environ.get("LATER_URL", "http://127.0.0.1:7600")
QUEUE = "python-reminders"


class LaterError(Exception):
    """A problem as in RFC 9457, with its code and field."""

    def __init__(self, problem):
        super().__init__(problem["detail"])
        self.code = problem["code"]
        self.field = problem.get("field")


def path(*segments):
    """The path of segments such as names and tokens. Clients and proxies may take . and .. out of it."""
    if any(s in ("", ".", "..") for s in segments):
        raise ValueError("this name cannot be in a path")
    return "/v1/" + "/".join(urllib.parse.quote(s, safe="") for s in segments)


def later(method, path, body=None):
    headers = {"Content-Type": "application/json"}
    if token := os.environ.get("LATER_TOKEN"):
        headers["Authorization"] = "Bearer " + token
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            text = reply.read()
    except urllib.error.HTTPError as err:
        raise LaterError(json.load(err)) from None
    return json.loads(text) if text else None


def handle(message):
    reminder = message["payload"]
    if reminder.get("fail") and message["attempt"] == 1:
        raise RuntimeError("not at home")
    print(f"hello {reminder['name']}, attempt {message['attempt']}")


# The id makes it safe to repeat the request, for example after a timeout.
messages = path("queues", QUEUE, "messages")
later("POST", messages, {"payload": {"name": "Ada"}, "in": "100ms", "id": "ada", "dedup_window": "1h"})
later("POST", messages, {"payload": {"name": "Bob", "fail": True}})
try:
    later("POST", messages, {"payload": "twice", "id": "ada"})
except LaterError as err:
    assert err.code == "duplicate", err.code

# A worker: it asks for messages, waits for them, and settles each with its token.
handled = 0
while handled < 2:
    got = later("POST", path("queues", QUEUE, "receive"), {"max": 10, "lease": "30s", "wait": "20s"})
    for message in got["messages"]:
        token = message["token"]
        try:
            handle(message)
        except Exception as err:
            later("POST", path("leases", token, "nack"), {"delay": "100ms", "reason": str(err)})
        else:
            later("POST", path("leases", token, "ack"))
            handled += 1
print("done")
