// Who looks at the page, and their rights.
import { get, path } from './api.js';
import { observable } from './html.js';

let server;
const [use, tell] = observable();

// loadServer asks the server who it is and who asks.
export async function loadServer() {
  server = await get(path('server'));
  tell();
  return server;
}

// useServer returns the data of the server about itself and who asks, or undefined.
export function useServer() {
  use();
  return server;
}

// known returns the server as useServer does, without rendering again.
export function known() {
  return server;
}

// may reports whether who looks has a right, such as operate. The server checks it again.
export function may(right) {
  return Boolean(server) && (!server.rights || server.rights.includes(right));
}

// hidesPayloads reports whether payloads, headers and error texts are hidden from who looks.
export function hidesPayloads() {
  return Boolean(server?.hide_payloads);
}
