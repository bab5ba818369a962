// The command palette: whatever one can go to or do, by typing a part of its name.
import { html, useEffect, useRef, useState } from '../html.js';
import { showHelp } from '../keys.js';
import { live } from '../live.js';
import { presets } from '../ranges.js';
import { open } from '../ui.js';
import { go } from '../url.js';
import { may } from '../who.js';
import { Choose, togglePause } from './queues.js';
import { Subscribe } from './topics.js';

const views = [['', 'Messages'], ['schedules', 'Schedules'], ['topics', 'Topics'], ['events', 'Events'],
  ['workers', 'Workers'], ['changes', 'Changes']];

function commands(setTheme) {
  const fresh = (to) => () => go(to, { base: {} });
  const all = views.map(([view, label]) => ({ label: `Go to ${label}`, run: fresh({ view }) }));
  for (const q of live.overview?.queues ?? []) {
    all.push({ label: `Queue ${q.queue}`, run: fresh({ queue: q.queue }) });
    if (q.dead) all.push({ label: `Dead messages of ${q.queue}`, run: fresh({ queue: q.queue, state: 'dead' }) });
    if (may('operate')) all.push({ label: `${q.paused ? 'Resume' : 'Pause'} queue ${q.queue}`,
      run: () => togglePause(q) });
  }
  all.push(
    { label: 'Dead messages by error', run: fresh({ state: 'dead', group: 'error' }) },
    { label: 'Show another queue…', run: () => open(Choose) },
    { label: 'Search messages', run: () => document.getElementById('search')?.focus() },
    ...presets().map(({ name, from, to }) => ({ label: `Due ${name}`,
      run: fresh({ from, to, z0: from, z1: to }) })),
    { label: 'Heights: linear', run: () => go({ scale: undefined }) },
    { label: 'Heights: square root', run: () => go({ scale: 'sqrt' }) },
    { label: 'Colours: light', run: () => setTheme('light') },
    { label: 'Colours: dark', run: () => setTheme('dark') },
    { label: 'Colours: as the system', run: () => setTheme('') },
    { label: 'Keys', run: showHelp },
  );
  if (may('operate')) all.push({ label: 'Subscribe a queue to a topic…',
    run: () => { go({ view: 'topics' }, { base: {} }); open(Subscribe, { done: () => {} }); } });
  return all;
}

export function Palette({ close, setTheme }) {
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const all = useRef();
  const list = useRef();
  all.current ??= commands(setTheme);
  const words = text.toLowerCase().split(/\s+/);
  const found = all.current.filter((c) => words.every((w) => c.label.toLowerCase().includes(w))).slice(0, 50);
  useEffect(() => list.current?.querySelector('[aria-selected=true]')?.scrollIntoView({ block: 'nearest' }));
  const run = (command) => {
    close();
    command?.run();
  };
  const key = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === 'Enter') run(found[at]);
    else if (step) setAt((at + step + found.length) % Math.max(1, found.length));
    else return;
    event.preventDefault();
  };
  return html`<h2 id="dialog-title" class="hidden">Commands</h2>
    <input role="combobox" aria-expanded="true" aria-controls="commands"
      aria-activedescendant=${found[at] ? `command-${at}` : undefined}
      aria-label="Command" placeholder="Type a command, a view or a queue" autofocus value=${text}
      onInput=${(event) => { setText(event.target.value); setAt(0); }} onKeyDown=${key} />
    <ul id="commands" role="listbox" aria-label="Commands" ref=${list}>${found.map((c, i) => html`
      <li id=${`command-${i}`} role="option" aria-selected=${i === at} onClick=${() => run(c)}>${c.label}</li>`)}</ul>
    ${!found.length && html`<p class="faint">Nothing matches.</p>`}`;
}
