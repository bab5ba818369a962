// The state of the page is its URL: each parameter of the query is a part of it, so that every view can be linked to.
import { html, observable } from './html.js';

const [use, tell] = observable();
let current = read();

// read returns the parameters. Times that are none, and a range of the chart without both ends, are not set.
function read() {
  const all = Object.fromEntries(new URLSearchParams(location.search));
  for (const name of ['from', 'to', 'z0', 'z1']) {
    if (Number.isNaN(Date.parse(all[name]))) delete all[name];
  }
  if (!(Date.parse(all.z0) < Date.parse(all.z1))) {
    delete all.z0;
    delete all.z1;
  }
  return all;
}

function changed() {
  current = read();
  tell();
}

addEventListener('popstate', changed);

// url returns the parameters as an object. Those that are not set are undefined.
export function url() {
  return current;
}

// useUrl returns the parameters, and renders again when one changes.
export function useUrl() {
  use();
  return current;
}

// href returns a link to the page with some parameters changed. One that is undefined or '' is removed.
function href(patch, base = current) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...base, ...patch })) {
    if (value !== undefined && value !== null && value !== '') query.set(name, value);
  }
  const text = query.toString();
  return text ? '?' + text : './';
}

// go changes some parameters. With replace, going back skips the state before.
export function go(patch, { replace = false, base = current } = {}) {
  const to = href(patch, base);
  if (to === (location.search || './')) return;
  history[replace ? 'replaceState' : 'pushState'](null, '', to);
  changed();
}

// Link is a link to the page with other parameters: "to" changes some, and "fresh" drops the others.
export function Link({ to, fresh, children, ...rest }) {
  const base = fresh ? {} : current;
  const follow = (event) => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(to, { base });
  };
  return html`<a href=${href(to, base)} onClick=${follow} ...${rest}>${children}</a>`;
}
