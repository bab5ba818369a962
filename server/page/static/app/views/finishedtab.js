// Whether the server keeps the finished messages of a queue, and the link to them.
import { html } from '../html.js';
import { Link, useUrl } from '../url.js';
import { useServer } from '../who.js';

// useKeeps reports whether the server keeps the finished messages of a queue.
export function useKeeps(queue) {
  const names = useServer()?.keeps_finished ?? [];
  return Boolean(queue) && names.some((name) => (
    name.endsWith('*') ? queue.startsWith(name.slice(0, -1)) : name === queue));
}

// FinishedTab is a link to the finished messages of the queue that is shown, if the server keeps them.
export function FinishedTab() {
  const params = useUrl();
  if (!useKeeps(params.queue)) return null;
  return html`<${Link} to=${{ state: 'finished', group: undefined, q: undefined, from: undefined, to: undefined }}
    aria-current=${params.state === 'finished' ? 'true' : undefined}>finished<//>`;
}
