// The data that the server sends by itself: the overview of queues and horizon, and its clock.
import { get, path, query } from './api.js';
import { millis } from './format.js';
import { observable, useEffect, useState } from './html.js';
import { mayConnect, onSight, seen } from './tabs.js';

// live is the latest state. Without a connection it is the last state that was known.
export const live = {
  overview: undefined, // of the queue and range that are watched
  received: 0, // when it came, on the clock of this machine
  problem: undefined, // why there is nothing newer
  problems: undefined, // of the store, which need a person
  connected: false,
  offset: 0, // of the store's clock from this machine's
};

// People who want less motion see one picture a second.
const calm = matchMedia('(prefers-reduced-motion: reduce)');
const pollEvery = 2000; // milliseconds, of a tab without a connection of its own
const problemsEvery = 10_000;

const [use, tell] = observable();
let shown = 0; // when the last overview was shown
let source; // the connection: it has close
let watched; // the parameters of the overview as a query, undefined before the first watch
let retry;
let wait = 500;
let followed = 0; // event streams of this tab, which take its connection

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
  if (watched === undefined || !seen()) return;
  if (mayConnect() && !followed) stream();
  else poll();
}

// arrived shows an overview. Queues that have not changed are the same objects as before.
function arrived(overview) {
  live.received = Date.now();
  if (overview !== live.overview) live.offset = Date.parse(overview.time) - live.received;
  live.overview = overview;
  live.problem = undefined;
  live.connected = true;
  wait = 500;
  if (calm.matches && live.received - shown < 900) return;
  shown = live.received;
  tell();
}

// changed returns an overview with the changes of an event.
function changed(before, { gone = [], queues, ...rest }) {
  const all = new Map(before.queues.map((q) => [q.queue, q]));
  gone.forEach((name) => all.delete(name));
  queues.forEach((q) => all.set(q.queue, q));
  const sorted = [...all.values()].sort((a, b) => (a.queue < b.queue ? -1 : 1));
  return { ...rest, runs: rest.runs ?? before.runs, queues: sorted };
}

function stream() {
  const events = new EventSource(`${path('overview', 'watch')}${watched || '?'}&changes=true`);
  source = events;
  let latest; // a part of the queues does not replace an overview of all
  const take = (overview) => {
    latest = overview;
    if (!latest.queues_read || !live.overview || live.overview.queues_read) arrived(latest);
  };
  events.addEventListener('overview', (event) => take(JSON.parse(event.data)));
  events.addEventListener('changes', (event) => take(changed(latest, JSON.parse(event.data))));
  events.addEventListener('problems', (event) => { // an overview follows, which is shown with it
    live.problems = JSON.parse(event.data);
  });
  events.addEventListener('problem', (event) => {
    live.problem = JSON.parse(event.data);
    live.connected = true;
    tell();
  });
  events.onerror = () => source === events && failed();
}

// failed says that nothing arrives, and connects again after a while.
async function failed(error) {
  disconnect();
  live.connected = error?.status >= 500; // the server has answered
  live.problem = error ?? live.problem ?? { detail: 'The server cannot be reached.' };
  const mine = setTimeout(connect, wait);
  retry = mine;
  wait = Math.min(wait * 2, 8000);
  tell();
  let problem = error;
  try {
    if (!error) await get(path('server')); // an EventSource gives no reason
  } catch (thrown) {
    problem = thrown;
  }
  if (!problem || retry !== mine) return; // it connects again already, such as after a login
  live.problem = { code: problem.code, detail: problem.message };
  if (problem.status === 401) disconnect();
  tell();
}

// poll asks for the overview again and again, since other tabs have the connections.
function poll() {
  const abort = new AbortController();
  const { signal } = abort;
  source = { close: () => abort.abort() };
  let asked = 0; // when the problems were
  let pause = pollEvery;
  const ask = async () => {
    try {
      if (Date.now() - asked > problemsEvery) {
        asked = Date.now();
        live.problems = await get(path('problems'), { signal });
      }
      const overview = await get(path('overview') + watched, { signal });
      pause = Math.max(pollEvery, 10 * millis(overview.took)); // a tenth of a store's time, as a stream takes
      if (!signal.aborted) arrived(overview);
    } catch (error) {
      if (!signal.aborted) failed(Object.assign(error, { detail: error.message }));
      return;
    }
    if (!signal.aborted) retry = setTimeout(ask, pause);
  };
  ask();
}

// reconnect watches the same overview again, such as after a login.
export function reconnect() {
  wait = 500;
  connect();
}

onSight(reconnect);

// follow calls event with each event of the store that matches, and state with whether it is connected, until the
// function that it returns is called. It takes the connection of this tab, which polls the overview until then. An
// event missed stands for the ones while the tab was not connected.
export function follow(params, { event, state }) {
  let events;
  let later;
  let began = false;
  const start = () => {
    clearTimeout(later);
    events?.close();
    state(false);
    if (!mayConnect()) return;
    let first = true;
    events = new EventSource(path('events') + query(params));
    events.onopen = () => {
      if (began && first) event({ kind: 'missed', time: new Date(now()).toISOString(), error: 'while not connected' });
      began = true;
      first = false;
      state(true);
    };
    events.onmessage = (message) => event(JSON.parse(message.data));
    events.onerror = () => {
      state(false); // the browser connects again by itself, unless the server refused
      if (events.readyState === EventSource.CLOSED) later = setTimeout(start, pollEvery);
    };
  };
  followed += 1;
  connect();
  start();
  const stop = onSight(start);
  return () => {
    stop();
    clearTimeout(later);
    events?.close();
    followed -= 1;
    connect();
  };
}
