// A message as a command that sends it again.
import { payloadText } from '../json.js';
import { goOf, optionNames } from '../options.js';

const shell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

// asCurl returns a command for the HTTP API.
export function asCurl(m) {
  const url = new URL(`v1/queues/${encodeURIComponent(m.queue)}/messages`, document.baseURI);
  const body = { id: m.id, headers: m.headers, max_attempts: m.max_attempts };
  for (const name of optionNames) body[name] = m[name];
  if (m.state === 'scheduled') body.at = m.due;
  Object.assign(body, { payload: m.payload, payload_text: m.payload_text, payload_base64: m.payload_base64 });
  return `curl ${shell(url.href)} -H 'Content-Type: application/json' -d ${shell(JSON.stringify(body))}`;
}

// asCommand returns a command of later.
export function asCommand(m) {
  const bytes = m.payload_base64 !== undefined;
  const parts = ['later send', `--id ${shell(m.id)}`];
  if (m.state === 'scheduled') parts.push(`--at ${shell(m.due)}`);
  for (const [name, value] of Object.entries(m.headers ?? {})) parts.push(`--header ${shell(`${name}=${value}`)}`);
  for (const name of optionNames) if (m[name]) parts.push(`--${name} ${shell(m[name])}`);
  parts.push('--', shell(m.queue), bytes ? '-' : shell(payloadText(m) ?? ''));
  return (bytes ? `base64 -d <<< ${shell(m.payload_base64)} | ` : '') + parts.join(' ');
}

// asGo returns Go code.
export function asGo(m) {
  const quote = JSON.stringify;
  const payload = m.payload_base64 === undefined ? `[]byte(${quote(payloadText(m) ?? '')})` :
    `[]byte{${[...atob(m.payload_base64)].map((c) => c.charCodeAt(0)).join(', ')}}`;
  const options = [`later.WithID(${quote(m.id)})`];
  if (m.state === 'scheduled') options.push(`later.At(time.UnixMilli(${Date.parse(m.due)}))`);
  for (const [name, value] of Object.entries(m.headers ?? {})) {
    options.push(`later.Header(${quote(name)}, ${quote(value)})`);
  }
  options.push(...goOf(m));
  return `_, err := client.Queue(${quote(m.queue)}).Send(ctx, ${payload}, ${options.join(', ')})`;
}
