// One box that finds anything: an id, a name, or the content of a message. The palette shows the same results.
import { examples, useFind } from '../find.js';
import { local, number, plural, relative } from '../format.js';
import { html, useEffect, useRef, useState } from '../html.js';
import { payloadText } from '../json.js';
import { useNow } from '../live.js';
import { word } from '../search.js';
import { Failure, State, Time } from '../ui.js';
import { go, Link, url, useUrl } from '../url.js';
import { hidesPayloads } from '../who.js';

// placeOf returns where a name is shown.
function placeOf({ kind, name, queue }) {
  switch (kind) {
    case 'queue': return { view: 'queue', queue };
    case 'topic': return { view: 'topics', topic: name };
    case 'schedule': return { view: 'schedules', schedule: name };
    case 'worker': return { view: 'workers' };
    case 'group': return { queue, q: word('group', name) };
    default: return { queue, q: word('group', `series:${name}`) };
  }
}

function MessageOption({ m }) {
  const time = useNow();
  const at = Date.parse(m.died_at || m.due);
  return html`<${State} of=${m.state} /> <span class="id">${m.id}</span> <span>${m.queue}</span>
    <span class="faint">${at ? `${local(at, time)} ${relative(at, time)}` : ''}</span>
    <span class="faint payload"><bdi>${!hidesPayloads() && payloadText(m)}</bdi></span>`;
}

// optionsOf returns the results of a search as options: a group, a key, a label and an action each.
export function optionsOf(search) {
  if (!search) return [];
  const show = (m) => () => go({ find: undefined, message: m.id, mq: m.queue }, { base: url().view ? {} : url() });
  const message = (group) => (m) => ({
    group, key: `${group} ${m.queue}/${m.id}`, exact: group === 'Exact id',
    label: html`<${MessageOption} m=${m} />`,
    run: show(m),
  });
  const name = (n) => ({
    group: 'Names', key: `${n.kind} ${n.name} ${n.queue}`, queue: n.kind === 'queue' && n.name,
    label: html`<span class="faint">${n.kind}</span> <strong>${n.name}</strong>
      ${n.queue && !['queue', 'topic'].includes(n.kind) && html` <span class="faint">in ${n.queue}</span>`}`,
    run: () => go(placeOf(n), { base: {} }),
  });
  const exactly = (n) => ['group', 'series'].includes(n.kind);
  const names = [...search.names.filter(exactly), ...search.names.filter((n) => !exactly(n))];
  const finished = (f) => ({
    group: 'Exact id', key: `finished ${f.queue}/${f.id}`, exact: true,
    label: html`<span class="faint">${f.outcome}</span> <span class="id">${f.id}</span>
      <span>${f.queue}</span> <span class="faint"><${Time} at=${f.time} /></span>`,
    run: show(f),
  });
  return [...search.ids.map(message('Exact id')), ...search.finished.map(finished), ...names.map(name),
    ...search.messages.slice(0, search.most).map(message('Messages'))];
}

// useChoice returns the option that Enter chooses, which stays the same while options come before it, and a handler of
// keys. Enter waits until the options belong to the text, and then chooses a message with exactly the id, unless forget
// was called.
export function useChoice(options, text, fresh, choose) {
  const [chosen, setChosen] = useState({});
  const wanted = useRef(); // the text when Enter was pressed
  const forget = () => { wanted.current = undefined; };
  const setKey = (key) => setChosen({ text, key });
  const key = chosen.text === text ? chosen.key : undefined;
  const at = Math.max(0, options.findIndex((o) => o.key === key));
  useEffect(() => {
    if (!fresh || !options.length) return;
    const waited = wanted.current === text;
    forget(); // else it would be chosen whenever the text is looked for again
    if (waited && options[0].exact) choose(options[0]);
    else if (key === undefined) setKey(options[0].key);
  });
  const onKeyDown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === 'Enter' && fresh && options.length) choose(options[at]);
    else if (event.key === 'Enter') wanted.current = text;
    else if (step && options.length) setKey(options[(at + step + options.length) % options.length].key);
    else if (!step) return;
    event.preventDefault();
  };
  return { at, onKeyDown, forget };
}

// Options is the list of a combobox, in groups.
export function Options({ id, options, at, choose, label }) {
  const list = useRef();
  useEffect(() => list.current?.querySelector('[aria-selected=true]')?.scrollIntoView({ block: 'nearest' }), [at]);
  if (!options.length) return null;
  const groups = new Map();
  for (const o of options) groups.set(o.group, [...groups.get(o.group) ?? [], o]);
  let n = -1;
  return html`<div id=${id} role="listbox" aria-label=${label} class="options" ref=${list}>
    ${[...groups].map(([group, some]) => html`<div role="group" aria-label=${group} key=${group}>
      <div class="faint grouphead" aria-hidden="true">${group}</div>
      ${some.map((o) => {
        n += 1;
        return html`<div id=${`${id}-${n}`} role="option" aria-selected=${n === at} key=${o.key}
          onMouseDown=${(event) => event.preventDefault()} onClick=${() => choose(o)}>${o.label}</div>`;
      })}</div>`)}
  </div>`;
}

const states = ['scheduled', 'ready', 'leased', 'dead'];

// Looked counts the messages that were looked at and that matched, and offers to go on.
export function Looked({ search }) {
  if (!search) return null;
  const { text, progress: p, running, done, next, looked, matched, error, namesLeftOut } = search;
  const total = (counts) => states.reduce((n, state) => n + counts[state], 0);
  const found = total(matched);
  const nothing = !running && !search.ids.length && !search.finished.length && !search.names.length && !found;
  const list = (state) => ({ state, q: text });
  const seen = p && `${number(total(looked))} of ${plural(total(p.messages), 'message')}`;
  const summary = p && `${plural(found, 'message')} found, ${seen} in ${plural(p.queues, 'queue')} looked at`;
  return html`<div class="looked">
    <${Failure} error=${error} retry=${() => search.run()} />
    ${p && search.stage === 'content' && html`
      ${nothing && html`<p><strong>${done ? 'Nothing was found.' : 'Nothing was found so far.'}</strong></p>`}
      <p>${summary}${running && '…'}</p>
      ${running && html`<progress max=${Math.max(1, total(p.messages))} value=${total(looked)}
        aria-label="Messages looked at"></progress>`}
      <p class="row">${states.filter((state) => p.messages[state] > 0 || looked[state] > 0).map((state) => html`<span>
        <${State} of=${state} /> ${matched[state] > 0 ? html`<${Link} fresh to=${list(state)}>
          ${plural(matched[state], 'match', 'matches')}<//>` : 'none'}
        <span class="faint"> in ${number(looked[state])} of ${number(Math.max(p.messages[state], looked[state]))}</span>
      </span>`)}</p>
      <p class="faint">Looked for ${p.conditions}${search.names.length || nothing ?
        ', and for names of queues, topics, schedules, workers, groups and series' : ''}.</p>
      ${p.left_out > 0 && html`<p class="late">${plural(p.left_out, 'queue')} cannot be read.</p>`}
      ${namesLeftOut > 0 && html`<p class="late">
        ${plural(namesLeftOut, 'name')} left out: give more of the name.</p>`}`}
    ${running && search.stage !== 'content' && html`<p class="faint">Looking…</p>`}
    <p role="status" class="hidden">${!running && summary}</p>
    ${next && !running && !error && html`<button onClick=${() => search.run()}>
      ${search.messages.length >= search.most ? 'Look for more' : 'Look further'}</button>`}
  </div>`;
}

// Help shows examples of texts. use puts one into the box.
function Help({ use }) {
  return html`<div class="findhelp"><h2>How to search</h2>
    <ul>${examples().map(([text, what]) => html`<li key=${text}>
      <button class="plain" onMouseDown=${(event) => event.preventDefault()} onClick=${() => use(text)}>
        <code>${text}</code></button> <span class="faint">${what}</span></li>`)}</ul>
    <p class="faint">All words and conditions must match.</p></div>`;
}

// focusFind puts the keyboard into the box.
export function focusFind() {
  const box = document.getElementById('find');
  box?.focus();
  box?.select();
}

// FindBox is the box in the header. Its text is in the URL while its results are shown.
export function FindBox() {
  const params = useUrl();
  const [text, setText] = useState(params.find ?? '');
  const [focus, setFocus] = useState(false);
  const [help, setHelp] = useState(false);
  const whole = useRef();
  const isOpen = Boolean(params.find) || focus;
  const search = useFind(isOpen ? text : '');
  const options = text.trim() ? optionsOf(search) : [];
  useEffect(() => { if (params.find !== undefined) setText(params.find); }, [params.find]); // a link, or going back
  useEffect(() => {
    if (!isOpen) return undefined;
    const outside = (event) => whole.current.contains(event.target) || leave();
    addEventListener('pointerdown', outside);
    return () => removeEventListener('pointerdown', outside);
  }, [isOpen]);
  const leave = () => {
    setFocus(false);
    document.getElementById('find').blur();
    go({ find: undefined }, { replace: true });
  };
  const type = (value) => {
    setText(value);
    setFocus(true);
    go({ find: value.trim() ? value : undefined }, { replace: true });
  };
  const choose = (option) => {
    setFocus(false);
    document.getElementById('find').blur();
    option.run();
  };
  const { at, onKeyDown, forget } = useChoice(options, text, search?.text === text.trim(), choose);
  const escape = (event) => {
    if (event.key !== 'Escape') return;
    leave();
    event.preventDefault();
    event.stopPropagation(); // it closes nothing else
  };
  const left = ({ relatedTarget: to }) => to && !whole.current.contains(to) && leave();
  const focused = () => { forget(); setFocus(true); };
  const showHelp = help || !text.trim();
  return html`<div class="find" ref=${whole} role="search" onKeyDown=${escape} onfocusout=${left}>
    <input id="find" type="search" role="combobox" aria-label="Find anything" aria-autocomplete="list"
      aria-expanded=${options.length > 0 && isOpen} aria-controls=${options.length > 0 && isOpen ? 'found' : undefined}
      aria-activedescendant=${options.length > 0 && isOpen ? `found-${at}` : undefined}
      placeholder="/ find anything" autocomplete="off" spellcheck="false" maxlength="4096" value=${text}
      onFocus=${focused} onInput=${(event) => type(event.target.value)} onKeyDown=${onKeyDown} />
    ${isOpen && html`<div class="found">
      <div class="results">
        <${Options} id="found" label="Found" options=${options} at=${at} choose=${choose} />
        ${text.trim() && html`<${Looked} search=${search} />`}
        ${!text.trim() && html`<p class="faint">An id, a name, or words and conditions: in all queues and states.</p>`}
        ${text.trim() && html`<button class="quiet" aria-expanded=${help} onClick=${() => setHelp(!help)}>
          ${help ? 'Hide the help' : 'How to search'}</button>`}
      </div>
      ${showHelp && html`<${Help} use=${(value) => { type(value); focusFind(); }} />`}
    </div>`}
  </div>`;
}
