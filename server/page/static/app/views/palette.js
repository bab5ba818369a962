// The command palette: views and actions by a part of their names, and all that the box finds.
import { useFind } from '../find.js';
import { html, useRef, useState } from '../html.js';
import { showHelp } from '../keys.js';
import { live } from '../live.js';
import { presets } from '../ranges.js';
import { open } from '../ui.js';
import { go, url } from '../url.js';
import { may } from '../who.js';
import { focusFind, Looked, Options, optionsOf, useChoice } from './find.js';
import { Choose, togglePause } from './queues.js';
import { sendMessage } from '../dialogs.js';
import { Subscribe } from './topics.js';

const views = [['', 'Messages'], ['queues', 'Queues'], ['schedules', 'Schedules'], ['topics', 'Topics'],
  ['events', 'Events'], ['workers', 'Workers'], ['changes', 'Changes']];

function commands(setTheme) {
  const fresh = (to) => () => go(to, { base: {} });
  const all = views.map(([view, label]) => ({ label: `Go to ${label}`, run: fresh({ view }) }));
  for (const q of live.overview?.queues ?? []) {
    all.push({ label: `Queue ${q.queue}`, run: fresh({ queue: q.queue }) });
    all.push({ label: `Page of queue ${q.queue}`, run: fresh({ view: 'queue', queue: q.queue }) });
    if (q.dead) all.push({ label: `Dead messages of ${q.queue}`, run: fresh({ queue: q.queue, state: 'dead' }) });
    if (may('operate')) all.push({ label: `${q.paused ? 'Resume' : 'Pause'} queue ${q.queue}`,
      run: () => togglePause(q) });
  }
  all.push(
    { label: 'Dead messages by error', run: fresh({ state: 'dead', group: 'error' }) },
    { label: 'Show another queue…', run: () => open(Choose) },
    ...may('send') ? [{ label: 'New message…', run: () => sendMessage({ queue: url().queue }) }] : [],
    { label: 'Find anything', run: () => setTimeout(focusFind) },
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
  const all = useRef();
  all.current ??= commands(setTheme);
  const words = text.toLowerCase().split(/\s+/);
  const known = all.current.filter((c) => words.every((w) => c.label.toLowerCase().includes(w))).slice(0, 50)
    .map((c) => ({ group: 'Commands', key: c.label, label: c.label, run: c.run }));
  const search = useFind(text);
  const fresh = search?.text === text.trim();
  const queues = new Set(live.overview?.queues.map((q) => q.queue));
  const found = optionsOf(fresh && search).filter((o) => !queues.has(o.queue)); // these have commands
  const options = [...found.filter((o) => o.exact), ...known, ...found.filter((o) => !o.exact)];
  const choose = (option) => {
    close();
    option.run();
  };
  const { at, onKeyDown } = useChoice(options, text, fresh || known.length > 0, choose);
  const shown = options.length > 0;
  return html`<h2 id="dialog-title" class="hidden">Commands</h2>
    <input role="combobox" aria-expanded=${shown} aria-controls=${shown ? 'commands' : undefined}
      aria-activedescendant=${shown ? `commands-${at}` : undefined} aria-autocomplete="list"
      aria-label="Command" placeholder="Type a command, a name, an id or words" autofocus value=${text}
      onInput=${(event) => setText(event.target.value)} onKeyDown=${onKeyDown} />
    <${Options} id="commands" label="Commands" options=${options} at=${at} choose=${choose} />
    <div onClick=${(event) => event.target.closest('a') && close()}><${Looked} search=${search} /></div>`;
}
