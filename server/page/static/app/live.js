// What the server sends by itself: the overview of queues and horizon, at most twice a second, and its clock.
import { get, path, query } from './api.js';
import { observable, useEffect, useState } from './html.js';

// live is what is known now. Without a connection it is the last that was known.
export const live = {
  overview: undefined, // of the queue and range that are watched
  received: 0, // when it came, on the clock of this machine
  problem: undefined, // why there is nothing newer
  problems: undefined, // of the store: what needs a person
  connected: false,
  offset: 0, // of the store's clock from this machine's
};

// Whoever wants less motion sees one picture a second.
const calm = matchMedia('(prefers-reduced-motion: reduce)');

const [use, tell] = observable();
let shown = 0; // when the last overview was shown
let source;
let watched;
let retry;
let wait = 500;

// useLive returns live, and renders again when it changes.
export function useLive() {
  use();
  return live;
}

// now returns the time of the store, in milliseconds.
export function now() {
  return Date.now() + live.offset;
}

// useNow returns the time of the store, and renders again as often as given, in milliseconds.
export function useNow(every = 1000) {
  const [, again] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => again((n) => n + 1), every);
    return () => clearInterval(timer);
  }, [every]);
  return now();
}

// watch has the server send the overview of a queue, or of all, with the horizon or a range of it.
export function watch(params) {
  const key = query(params);
  if (key === watched && (source || retry)) return;
  watched = key;
  wait = 500;
  connect();
}

function disconnect() {
  clearTimeout(retry);
  retry = undefined;
  source?.close();
  source = undefined;
}

function connect() {
  disconnect();
  const events = new EventSource(path('overview', 'watch') + watched);
  source = events;
  events.addEventListener('overview', (event) => {
    live.overview = JSON.parse(event.data);
    live.received = Date.now();
    live.offset = Date.parse(live.overview.time) - live.received;
    live.problem = undefined;
    live.connected = true;
    wait = 500;
    if (calm.matches && live.received - shown < 900) return;
    shown = live.received;
    tell();
  });
  events.addEventListener('problems', (event) => { // an overview follows, which is shown with it
    live.problems = JSON.parse(event.data);
  });
  events.addEventListener('problem', (event) => {
    live.problem = JSON.parse(event.data);
    live.connected = true;
    tell();
  });
  events.onerror = async () => {
    if (source !== events) return;
    disconnect();
    live.connected = false;
    live.problem ??= { detail: 'The server cannot be reached.' };
    retry = setTimeout(connect, wait);
    wait = Math.min(wait * 2, 8000);
    tell();
    try {
      await get(path('server')); // an EventSource does not say what was wrong
    } catch (error) {
      live.problem = { code: error.code, detail: error.message };
      if (error.status === 401) disconnect();
      tell();
    }
  };
}

// reconnect watches again what was watched before, such as after a login.
export function reconnect() {
  wait = 500;
  if (watched !== undefined) connect();
}

// follow calls event with each event of the store that matches, and state with whether it is connected, until the
// function that it returns is called.
export function follow(params, { event, state }) {
  let events;
  const start = () => {
    state(false);
    events = new EventSource(path('events') + query(params));
    events.onopen = () => state(true);
    events.onmessage = (message) => event(JSON.parse(message.data));
    events.onerror = () => state(false);
  };
  start();
  const stop = whileShown(start, () => events.close());
  return () => { stop(); events.close(); };
}

// whileShown calls hide when the browser leaves the page, and show when it comes back to it, until the function that it
// returns is called. A page that is left would keep its connections, of which a browser has six for a server.
function whileShown(show, hide) {
  const shown = (event) => event.persisted && show();
  addEventListener('pagehide', hide);
  addEventListener('pageshow', shown);
  return () => {
    removeEventListener('pagehide', hide);
    removeEventListener('pageshow', shown);
  };
}

whileShown(reconnect, disconnect);

// A page that nobody sees needs no news.
let hidden;
document.addEventListener('visibilitychange', () => {
  clearTimeout(hidden);
  if (document.visibilityState === 'hidden') {
    hidden = setTimeout(disconnect, 30_000);
  } else if (!source && watched !== undefined) {
    reconnect();
  }
});
