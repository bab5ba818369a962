// Whether this tab is seen, and whether it may keep a connection open. A browser has six connections to a server
// without HTTP/2, which all tabs of this page share: tabs that are seen tell each other so, and the first ones connect.
const most = 4; // tabs with a connection: the other two are for requests
const every = 4000; // milliseconds from one message of a tab to the next
const lost = 3 * every; // a tab without a message for so long is gone
const hideAfter = 2000; // milliseconds: whoever looks at another tab may come back at once

const id = Math.random();
const others = new Map(); // tabs that are seen, by id: since when, and when they said so
const navigation = performance.getEntriesByType('navigation')[0];
const limited = !/^h[23]/.test(navigation?.nextHopProtocol ?? '') && 'BroadcastChannel' in window;
const channel = limited ? new BroadcastChannel('later') : undefined;
const listeners = new Set();
let since = 0; // when this tab came into sight, 0 while it is not
let state = '';

// mayConnect reports whether this tab may keep a connection open.
export function mayConnect() {
  if (!since) return false;
  let before = 0;
  for (const [other, tab] of others) {
    if (Date.now() - tab.heard > lost) others.delete(other);
    else if (tab.since < since || (tab.since === since && other < id)) before += 1;
  }
  return before < most;
}

// seen reports whether this tab is seen.
export function seen() {
  return since > 0;
}

// onSight calls a function when seen or mayConnect have changed, until the function that it returns is called.
export function onSight(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function check() {
  const now = `${seen()} ${mayConnect()}`;
  if (now === state) return;
  state = now;
  listeners.forEach((listener) => listener());
}

function tell(isNew = false) {
  channel?.postMessage({ id, since, isNew });
  check();
}

channel?.addEventListener('message', ({ data: tab }) => {
  if (tab.since) others.set(tab.id, { since: tab.since, heard: Date.now() });
  else others.delete(tab.id);
  if (tab.isNew && since) tell();
  else check();
});

let timer;
let hiding;

function show() {
  clearTimeout(hiding);
  if (since) return;
  since = Date.now();
  tell(true);
  timer = setInterval(tell, every);
}

function hide() {
  clearTimeout(hiding);
  clearInterval(timer);
  since = 0;
  tell();
}

document.addEventListener('visibilitychange', () => {
  clearTimeout(hiding);
  if (document.visibilityState === 'visible') show();
  else hiding = setTimeout(hide, hideAfter);
});
addEventListener('pagehide', hide); // a page that is kept in memory would keep its connections
addEventListener('pageshow', (event) => event.persisted && show());
if (document.visibilityState === 'visible') show();
