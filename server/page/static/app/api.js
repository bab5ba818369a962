// Requests to the server. Paths are relative, so that the page works under any prefix.
import { parse } from './json.js';

// Problem is an error that the server described, or that kept it from answering.
export class Problem extends Error {
  constructor({ code = 'internal', detail, field, status = 0, instance }) {
    super(detail);
    Object.assign(this, { code, field, status, instance });
  }
}

let unauthorized = () => {};

// onUnauthorized sets the function for when the server wants to know who asks.
export function onUnauthorized(f) {
  unauthorized = f;
}

async function problemOf(response) {
  const body = await response.json().catch(() => ({})); // a proxy may have answered
  const detail = body.detail || `The server answered ${response.status} ${response.statusText}.`;
  return new Problem({ ...body, status: response.status, detail });
}

// request sends a request and returns the response. It throws a Problem if that is not a success.
export async function request(method, path, body, options = {}) {
  const init = { method, ...options };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { 'Content-Type': 'application/json', ...options.headers };
  }
  let response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem({ code: 'unavailable', detail: 'The server cannot be reached.' });
  }
  if (response.ok || response.status === 304) return response;
  if (response.status === 401) {
    known.clear();
    unauthorized();
  }
  throw await problemOf(response);
}

async function json(method, path, body, options) {
  const response = await request(method, path, body, options);
  return response.status === 204 ? undefined : parse(await response.text());
}

// known has the latest replies to GETs by path. It is in memory, because payloads must not be written to a disk.
const known = new Map();
const mostKnown = 50;
const headerBytes = 600; // of a request and its reply

// get returns a value, which is the same object as before if it has not changed: do not change it. It calls size with
// the bytes that were transferred, about.
export async function get(path, { signal, size } = {}) {
  const before = known.get(path);
  const headers = before && { 'If-None-Match': before.tag };
  const response = await request('GET', path, undefined, { signal, headers });
  const text = response.status === 304 ? '' : await response.text();
  size?.(Number(response.headers.get('Content-Length') ?? text.length / 4) + headerBytes);
  const reply = response.status === 304 ? before : { tag: response.headers.get('ETag'), value: parse(text) };
  known.delete(path); // so that the latest is the last
  if (reply.tag) known.set(path, reply);
  if (known.size > mostKnown) known.delete(known.keys().next().value);
  return reply.value;
}

export const post = (path, body = {}, options) => json('POST', path, body, options);
export const put = (path, body) => json('PUT', path, body);
export const remove = (path) => json('DELETE', path);

// path joins the parts of a path, each encoded, to one of the API. A browser takes the parts . and .. out of a path,
// however they are encoded, so that the request would reach another resource.
export function path(...parts) {
  const dots = parts.find((part) => /^\.{1,2}$/.test(part));
  if (dots) throw new Error(`no path can hold the name "${dots}": select its messages by a filter`);
  return ['v1', ...parts].map(encodeURIComponent).join('/');
}

// query returns parameters as a text that begins with "?", or '' for none. Arrays stand for repeated ones.
export function query(params) {
  const all = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== '') all.append(name, one);
    }
  }
  const text = all.toString();
  return text && '?' + text;
}
