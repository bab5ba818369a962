// Sends messages with Node's fetch, and works on them. Start a server with: later serve
// LATER_URL is its address, and LATER_TOKEN a token, if it wants one.

const url = process.env.LATER_URL ?? "http://127.0.0.1:7600";
const queue = "node-reminders";

// The path of segments such as names and tokens. fetch would take . and .. out of it, in any encoding.
function path(...segments) {
  if (segments.some((s) => s === "" || s === "." || s === "..")) throw new Error("this name cannot be in a path");
  return "/v1/" + segments.map(encodeURIComponent).join("/");
}

async function later(method, path, body) {
  const headers = { "Content-Type": "application/json" };
  if (process.env.LATER_TOKEN) headers.Authorization = `Bearer ${process.env.LATER_TOKEN}`;
  const reply = await fetch(url + path, { method, headers, body: body && JSON.stringify(body) });
  const text = await reply.text();
  const value = text && JSON.parse(text);
  if (!reply.ok) throw Object.assign(new Error(value.detail), value); // with code and field
  return value;
}

async function handle(message) {
  const { name, fail } = message.payload;
  if (fail && message.attempt === 1) throw new Error("not at home");
  console.log(`hello ${name}, attempt ${message.attempt}`);
}

await later("POST", path("queues", queue, "messages"), { payload: { name: "Ada" }, in: "100ms" });
await later("POST", path("queues", queue, "messages"), { payload: { name: "Bob", fail: true } });

// A worker: it asks for messages, waits for them, and settles each with its token.
for (let handled = 0; handled < 2; ) {
  const { messages } = await later("POST", path("queues", queue, "receive"), { max: 10, lease: "30s", wait: "20s" });
  for (const message of messages) {
    try {
      await handle(message);
      await later("POST", path("leases", message.token, "ack"));
      handled++;
    } catch (err) {
      await later("POST", path("leases", message.token, "nack"), { delay: "100ms", reason: String(err) });
    }
  }
}
console.log("done");
