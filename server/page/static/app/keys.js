// The keyboard: each view binds its keys while it is shown, and the help lists them.
import { html, useLayoutEffect, useRef } from './html.js';
import { dialogOpen, open } from './ui.js';

const bound = []; // latest last
let prefix; // the first key of two, such as g
let forget; // the timer that ends it

// useKeys binds keys while a component is shown. Each key has a description and a function: {j: ['next message', f]}.
export function useKeys(keys) {
  const latest = useRef();
  latest.current = keys;
  useLayoutEffect(() => { // so that a key works as soon as the view is seen
    bound.push(latest);
    return () => bound.splice(bound.indexOf(latest), 1);
  }, []);
}

function typing({ target }) {
  return target.closest('input:not([type=checkbox]), textarea, select, [contenteditable]');
}

// activates reports whether a key presses the focused element.
function activates({ key, target }) {
  return (key === 'Enter' && target.closest('a, button, summary')) ||
    (key === ' ' && target.closest('button, summary, input'));
}

// nameOf returns the name of a key, such as Shift Space. Characters have their own with Shift.
function nameOf({ key, shiftKey }) {
  if (key !== ' ') return key;
  return shiftKey ? 'Shift Space' : 'Space';
}

function find(name) {
  return bound.findLast((keys) => keys.current?.[name])?.current[name];
}

addEventListener('keydown', (event) => {
  const palette = event.key === 'k' && (event.ctrlKey || event.metaKey);
  if (dialogOpen() || (!palette && (event.ctrlKey || event.metaKey || event.altKey || typing(event) ||
    activates(event)))) return;
  const name = palette ? 'Ctrl K' : prefix ? `${prefix} ${event.key}` : nameOf(event);
  prefix = undefined;
  const key = find(name);
  if (key) {
    event.preventDefault();
    key[1]();
  } else if (event.key === 'g') {
    prefix = 'g';
    clearTimeout(forget);
    forget = setTimeout(() => { prefix = undefined; }, 1500);
  }
});

// showHelp opens the list of keys.
export function showHelp() {
  open(Help);
}

function Help({ close }) {
  const all = new Map();
  for (const keys of bound) {
    for (const [name, [what]] of Object.entries(keys.current ?? {})) all.set(name, what);
  }
  return html`<h2 id="dialog-title">Keys</h2>
    <dl class="keys">${[...all].map(([name, what]) => html`<div>
      <dt>${name.split(' ').map((k) => html`<kbd>${k}</kbd> `)}</dt><dd>${what}</dd></div>`)}</dl>
    <p class="faint">On the chart: arrow keys move, with Shift they select, Enter shows the messages, + and − zoom.
      In the list of queues: up and down move between queues, left and right among the links and buttons of one.</p>
    <div class="buttons"><button autofocus onClick=${close}>Close</button></div>`;
}
