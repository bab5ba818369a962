// The page begins here: its frame, which view is shown, and the keys that work everywhere.
import { onUnauthorized } from './api.js';
import { duration, local, visible } from './format.js';
import { html, render, useEffect, useLayoutEffect, useRef, useState } from './html.js';
import { showHelp, useKeys } from './keys.js';
import { now, reconnect, useLive, useNow, watch } from './live.js';
import { noRange, watched } from './ranges.js';
import { Dialogs, Failure, lazy, Nav, Notices, open, useEvery } from './ui.js';
import { go, Link, url, useUrl } from './url.js';
import { FindBox, focusFind } from './views/find.js';
import { Home } from './views/home.js';
import { Login, logout } from './views/login.js';
import { Problems } from './views/problems.js';
import { sendMessage } from './dialogs.js';
import { loadServer, may, useServer } from './who.js';

const views = {
  '': ['Messages', Home, 'h'],
  queues: ['Queues', lazy(() => import('./views/queuetable.js').then((m) => m.QueueTable)), 'q'],
  schedules: ['Schedules', lazy(() => import('./views/schedules.js').then((m) => m.Schedules)), 's'],
  topics: ['Topics', lazy(() => import('./views/topics.js').then((m) => m.Topics)), 't'],
  events: ['Events', lazy(() => import('./views/events.js').then((m) => m.Events)), 'e'],
  workers: ['Workers', lazy(() => import('./views/workers.js').then((m) => m.Workers)), 'w'],
  changes: ['Changes', lazy(() => import('./views/changes.js').then((m) => m.Changes)), 'c'],
};
const Palette = lazy(() => import('./views/palette.js').then((m) => m.Palette));

// queuePage is not linked in the header: the list and the table of queues lead to it.
const queuePage = ['Queue', lazy(() => import('./views/queue.js').then((m) => m.QueuePage))];

const themes = ['', 'light', 'dark'];

function setTheme(name) {
  try {
    localStorage.setItem('theme', name);
  } catch {
    // private windows may refuse it
  }
  document.documentElement.dataset.theme = name;
}

try {
  setTheme(localStorage.getItem('theme') ?? '');
} catch {
  // as above
}

// watchView watches the data of a view.
function watchView(params) {
  const { view, queue } = params;
  if (view === 'queue') watch({ queue, list: 'all' });
  else watch(view ? {} : { queue, list: queue && 'all', ...watched(params) });
}

// The data of the first picture is asked for before anything is drawn.
const first = loadServer();
first.then(() => watchView(url()), () => {}); // App shows the error

function App() {
  const params = useUrl();
  const server = useServer();
  const [login, setLogin] = useState(false);
  const [error, setError] = useState();
  const begin = (loaded) => loaded.then(() => setError(undefined), (problem) => {
    if (problem.status === 401) setLogin(true);
    else setError(problem);
  });
  useEffect(() => {
    onUnauthorized(() => setLogin(true));
    begin(first);
  }, []);
  useEvery(error && !login ? 2000 : 0, () => begin(loadServer()));
  const view = params.view === 'queue' && params.queue ? queuePage : views[params.view ?? ''] ?? views[''];
  useEffect(() => {
    if (server && !login) watchView(params);
  }, [server, login, params.view, params.queue, params.z0, params.z1]);
  useEffect(() => {
    document.title = visible(`${params.message ?? params.schedule ?? params.topic ?? params.queue ?? view[0]} · Later`);
  });
  const fresh = (name) => () => go({ view: name }, { base: {} });
  useKeys({
    '?': ['this help', showHelp],
    '/': ['find anything', focusFind],
    'Ctrl K': ['commands', () => open(Palette, { setTheme })],
    ':': ['commands', () => open(Palette, { setTheme })],
    ...may('send') && { n: ['new message', () => sendMessage({ queue: url().queue })] },
    'g d': ['go to dead messages by error', () => go({ state: 'dead', group: 'error' }, { base: {} })],
    ...Object.fromEntries(Object.entries(views).map(([name, [label,, key]]) => (
      [`g ${key}`, [`go to ${label}`, fresh(name)]]))),
    Escape: ['clear the range or the search', () => go({ ...noRange, q: undefined, find: undefined })],
  });
  const done = () => { setLogin(false); setError(undefined); };
  if (!server && login) return html`<main class="login"><${Login} done=${done} /></main>`;
  if (!server) {
    return html`<main>${error ? html`<${Failure} error=${error} retry=${() => begin(loadServer())} />` :
      html`<p class="empty" aria-busy="true">Loading…</p>`}</main>`;
  }
  const View = view[1];
  return html`<a class="skip" href="#content">Skip to the content</a>
    <${Header} server=${server} />
    <${Connection} />
    <${Problems} />
    <div id="content"><${View} key=${params.view} /></div>
    <${Dialogs} />
    ${login && html`<${LoginAgain} done=${done} />`}
    <${Notices} />`;
}

// LoginAgain asks for a token above the page and its dialogs, which keep their texts.
function LoginAgain({ done }) {
  const element = useRef();
  const show = () => element.current?.showModal();
  useLayoutEffect(() => {
    const { current } = element;
    show();
    return () => {
      current.close(); // gives the focus back, unless its button was disabled while it worked
      if (document.activeElement !== document.body) return;
      document.querySelector('dialog[open] :is(textarea, input, select, button):enabled')?.focus();
    };
  }, []);
  // A browser closes a dialog at the second Escape, whatever the page says.
  return html`<dialog ref=${element} class="login" onCancel=${(event) => event.preventDefault()} onClose=${show}
    onKeyDown=${(event) => event.stopPropagation()} aria-label="Log in"><${Login} done=${done} /></dialog>`;
}

// currentOf returns the aria-current of the link to a view.
function currentOf(name, view = '') {
  if (view === name) return 'page';
  return name === 'queues' && view === 'queue' ? 'true' : undefined;
}

function Header({ server }) {
  const params = useUrl();
  const [theme, next] = useState(document.documentElement.dataset.theme ?? '');
  const turn = () => {
    const after = themes[(themes.indexOf(theme) + 1) % themes.length];
    setTheme(after);
    next(after);
  };
  return html`<header class="top">
    <${Link} fresh to=${{}} class="brand">Later<//>
    <${Nav} label="Views" class="views">${Object.entries(views).map(([name, [label]]) => html`
      <${Link} fresh to=${{ view: name, queue: params.queue }}
        aria-current=${currentOf(name, params.view)}>${label}<//>`)}<//>
    <${FindBox} />
    <span class="grow"></span>
    <${Status} />
    <button class="quiet" onClick=${turn} title="Colours: as the system, light or dark">
      ${{ '': 'Auto', light: 'Light', dark: 'Dark' }[theme]}<span class="hidden"> colours</span></button>
    <button class="quiet" onClick=${showHelp} aria-label="Keys and help" title="Keys and help (?)">?</button>
    ${server.who && html`<details class="menu end"><summary class="button quiet">${server.who}</summary><div>
      <p class="faint">Role ${server.role}${server.queues && `, queues ${server.queues.join(', ')}`}</p>
      <button onClick=${logout}>Log out</button></div></details>`}
  </header>`;
}

function Status() {
  const live = useLive();
  const time = useNow();
  const ok = live.connected && !live.problem;
  return html`<span class=${ok ? 'live' : 'live off'} title=${ok ? 'Data arrives as it changes' : undefined}>
    ${ok ? 'live' : 'not live'} ${local(time, time)}</span>`;
}

// Connection says that the data on the screen is old, since when and why.
function Connection() {
  const live = useLive();
  const time = useNow();
  if (!live.problem) return null;
  const age = live.received && now() - live.offset - live.received;
  return html`<div class="banner" role="alert">
    <span><strong>${live.connected ? 'The store cannot be read.' : 'Not connected.'}</strong> ${live.problem.detail}
      ${live.received > 0 && ` What you see is from ${local(live.received + live.offset, time)},
        ${duration(Math.floor(age / 1e3) * 1e3)} ago.`}</span>
    <button onClick=${reconnect}>Try now</button>
  </div>`;
}

const root = document.getElementById('app');
root.textContent = '';
render(html`<${App} />`, root);
