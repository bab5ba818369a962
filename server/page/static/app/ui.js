// Components that several views share.
import { local, iso, number, plural, relative } from './format.js';
import { html, observable, useEffect, useRef, useState } from './html.js';
import { useLive, useNow } from './live.js';
import { useServer } from './who.js';

// Time is a time on the local clock and from now; its title has it in UTC, exactly.
export function Time({ at, only }) {
  const time = useNow();
  if (!at) return html`<span class="faint">–</span>`;
  const ms = Date.parse(at);
  return html`<time datetime=${at} title=${iso(ms)}>
    ${only !== 'relative' && local(ms, time)}
    ${!only && ' '}
    ${only !== 'local' && html`<span class=${only ? '' : 'faint'}>${relative(ms, time)}</span>`}
  </time>`;
}

// useLoad calls load with an AbortSignal when dependencies change and after a login, and again after some milliseconds
// if every is given and the one before has ended. It returns the last result and when it came, the error, and a
// function that loads again. It renders if the data or the error changes.
export function useLoad(load, dependencies, every = 0) {
  const [state, setState] = useState({});
  const at = useRef();
  const server = useServer();
  const latest = useRef();
  latest.current = load;
  const again = useRef();
  const loading = useRef(); // the signal of the load that is under way
  useEffect(() => {
    let abort;
    again.current = () => {
      abort?.abort();
      abort = new AbortController();
      const { signal } = abort;
      loading.current = signal;
      latest.current(signal).finally(() => { if (loading.current === signal) loading.current = undefined; }).then(
        (data) => {
          if (signal.aborted) return;
          at.current = Date.now();
          setState((s) => (s.data === data && !s.error ? s : { data }));
        },
        (error) => signal.aborted || setState(({ data }) => ({ data, error })),
      );
    };
    again.current();
    return () => abort.abort();
  }, [...dependencies, server]);
  const reload = () => again.current();
  useEvery(every, () => loading.current || reload());
  return { ...state, reload, at: at.current };
}

// useEvery calls f regularly while the page is seen. Times are in milliseconds; 0 is never.
export function useEvery(every, f) {
  const latest = useRef(f);
  latest.current = f;
  useEffect(() => {
    if (!every) return undefined;
    const timer = setInterval(() => document.visibilityState === 'visible' && latest.current(), every);
    return () => clearInterval(timer);
  }, [every]);
}

// Failure shows an error where it happened, with a way on.
export function Failure({ error, retry }) {
  if (!error) return null;
  return html`<div class="failure" role="alert">
    <p>${error.message ?? error.detail}</p>
    ${error.instance && html`<p class="faint">The server's log has more under ${error.instance}.</p>`}
    ${retry && html`<button onClick=${retry}>Try again</button>`}
  </div>`;
}

// Trouble shows why something could not be loaded. If the banner says already that nothing can be, it is the age of
// the data on the screen, which was loaded at a time, or that there is none yet.
export function Trouble({ error, retry, at }) {
  const { problem } = useLive();
  const time = useNow();
  if (!error) return null;
  if (!problem || error.code !== 'unavailable') return html`<${Failure} error=${error} retry=${retry} />`;
  const offset = time - Date.now();
  return html`<p class="faint pad">${at ? `As of ${local(at + offset, time)}, ${relative(at + offset, time)}` :
    'Waits for the store'}</p>`;
}

// Reading says how many queues the server has read so far, until it has read all.
export function Reading({ overview: { queues_read: read, queue_count: count } }) {
  return read > 0 && html`<span class="faint" role="status">
    ${read < count ? `${number(read)} of ${plural(count, 'queue')}` : `the counts of ${plural(count, 'queue')}`}
    ${' '}read so far</span>`;
}

// lazy returns a component that is loaded when it is first shown.
export function lazy(load) {
  let component;
  return function Lazy(properties) {
    const [state, setState] = useState({});
    const run = () => load().then((loaded) => {
      component = loaded;
      setState({});
    }, () => setState({ error: { message: 'This part of the page cannot be loaded. If the server ' +
      'has a new version, load the page again.' } }));
    useEffect(() => { if (!component) run(); }, []);
    if (component) return html`<${component} ...${properties} />`;
    return state.error ? html`<${Failure} error=${state.error} retry=${run} />` :
      html`<p class="empty" aria-busy="true">Loading…</p>`;
  };
}

// Loaded shows what was loaded: its error next to the last data, or that it is loading or empty.
export function Loaded({ of: { data, error, reload, at }, empty, children }) {
  return html`
    <${Trouble} error=${error} retry=${reload} at=${at} />
    ${data === undefined && !error && html`<p class="empty" aria-busy="true">Loading…</p>`}
    ${data !== undefined && (empty?.(data) || children(data))}`;
}

// Empty says that there is nothing, and how to change that.
export function Empty({ title, children }) {
  return html`<div class="empty"><p><strong>${title}</strong></p>${children && html`<p>${children}</p>`}</div>`;
}

// Nav is a list of links to views.
export function Nav({ label, class: name = 'tabs', children }) {
  return html`<nav class=${name} aria-label=${label}>${children}</nav>`;
}

// Notices: the results of actions, for some seconds, with a way to undo it.

const [useNotices, noticesChanged] = observable();
let notices = [];

// notify shows a text for some seconds. undo is called if whoever looks wants that.
export function notify(text, { undo, bad } = {}) {
  const notice = { text, undo, bad };
  notices = [...notices.slice(-2), notice];
  noticesChanged();
  setTimeout(() => dismiss(notice), undo || bad ? 15_000 : 5000);
}

function dismiss(notice) {
  notices = notices.filter((n) => n !== notice);
  noticesChanged();
}

// Notices shows the texts of notify.
export function Notices() {
  useNotices();
  return html`<div class="notices" role="status">
    ${notices.map((notice) => html`<div class=${notice.bad ? 'notice bad' : 'notice'} key=${notice}>
      <span>${notice.text}</span>
      ${notice.undo && html`<button onClick=${() => { dismiss(notice); notice.undo(); }}>Undo</button>`}
      <button class="plain" aria-label="Dismiss" onClick=${() => dismiss(notice)}>✕</button>
    </div>`)}
  </div>`;
}

// attempt does something and shows the result. It returns whether that worked.
export async function attempt(done, work) {
  try {
    await work();
    if (done) notify(done);
    return true;
  } catch (error) {
    notify(error.message, { bad: true });
    return false;
  }
}

// copy puts a text on the clipboard.
export function copy(text, what) {
  return attempt(`Copied ${what}`, async () => {
    if (!navigator.clipboard) throw new Error('The browser allows copying on https and localhost only.');
    await navigator.clipboard.writeText(text);
  });
}

// Dialogs: one at a time, above the page.

const [useDialog, dialogChanged] = observable();
let dialog;

// open shows a component in a dialog. It gets the properties, and close.
export function open(component, properties = {}) {
  dialog = { component, properties };
  dialogChanged();
}

// close closes the dialog.
function close() {
  dialog = undefined;
  dialogChanged();
}

// dialogOpen reports whether there is a dialog.
export function dialogOpen() {
  return dialog !== undefined;
}

// Dialogs shows the component of open.
export function Dialogs() {
  useDialog();
  return dialog && html`<${Dialog} key=${dialog} ...${dialog} />`;
}

function Dialog({ component, properties }) {
  const element = useRef();
  useEffect(() => {
    const before = document.activeElement;
    element.current.showModal();
    return () => before?.focus?.({ preventScroll: true });
  }, []);
  const outside = (event) => event.target === element.current && close();
  return html`<dialog ref=${element} onClose=${close} onMouseDown=${outside} aria-labelledby="dialog-title">
    <div class="dialog"><${component} ...${properties} close=${close} /></div>
  </dialog>`;
}

// Form is the content of a dialog: a title, fields, and a button that does something. It stays open with the error if
// that fails, and if submit returns true.
export function Form({ title, action, danger, disabled, focus, submit, close: leave = close, children }) {
  const [state, setState] = useState({});
  const send = async (event) => {
    event.preventDefault();
    setState({ busy: true });
    try {
      const stay = await submit(Object.fromEntries(new FormData(event.target)));
      if (stay === true) setState({}); // else it is the reply of the server
      else leave();
    } catch (error) {
      setState({ error });
    }
  };
  return html`<form onSubmit=${send}>
    <h2 id="dialog-title">${title}</h2>
    ${children}
    <${Failure} error=${state.error} />
    <div class="buttons">
      <button type="button" onClick=${leave}>Close</button>
      <button class=${danger ? 'danger' : 'primary'} disabled=${disabled || state.busy} autofocus=${focus}>
        ${state.busy ? 'Working…' : action}
      </button>
    </div>
  </form>`;
}

// Confirm is a Form without fields. The keyboard is at its action, unless that is a danger.
export function Confirm({ title, text, action, danger, submit }) {
  return html`<${Form} title=${title} action=${action} danger=${danger} focus=${!danger} submit=${submit}>
    <p>${text}</p><//>`;
}

// Field is an input with its label, and a hint.
export function Field({ label, hint, children, ...input }) {
  return html`<label class="field"><span>${label}</span>
    ${children ?? html`<input ...${input} />`}
    ${hint && html`<small>${hint}</small>`}
  </label>`;
}

// narrow matches where columns are below each other.
export const narrow = matchMedia('(max-width: 900px)');

// Table has the names of its columns, and scrolls if it is long. The last columns, as many as numbers, have numbers.
export function Table({ label, head, tall, numbers = 0, class: name, children }) {
  const number = (i) => (i >= head.length - numbers ? 'number' : undefined);
  return html`<div class=${tall ? 'scroll tall' : 'scroll'} tabIndex="0" role="region" aria-label=${label}>
    <table class=${name}>
    <thead><tr>${head.map((text, i) => html`<th scope="col" class=${number(i)}>${text}</th>`)}</tr></thead>
      <tbody>${children}</tbody></table></div>`;
}

// Panel shows one thing of a list, with a way back to the list.
export function Panel({ title, back, card, mono, beside, children }) {
  return html`<article class=${card ? 'card panel' : 'panel'} aria-labelledby="panel-title">
    ${card && html`<h1 class="hidden">Details</h1>`}
    <header class="row"><button class="back" aria-label="Back to the list" onClick=${back}>←</button>
      <h2 id="panel-title" class=${mono ? 'id' : ''}>${title}</h2>${beside}</header>
    ${children}
  </article>`;
}

// State is the state of a message, as a shape, a colour and a word.
export function State({ of, label = of }) {
  return html`<span class=${`state ${of}`}>${label}</span>`;
}

// Facts is a list of names and values. Those without a value are left out.
export function Facts({ of }) {
  return html`<dl class="facts">
    ${of.filter(([, value]) => value !== undefined && value !== null && value !== '' && value !== false)
    .map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

// download has the browser save a text as a file.
export function download(name, text, type = 'application/json') {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
