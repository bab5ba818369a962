// The settings of a queue that change how it works, in a word each.
import { number, plural } from '../format.js';
import { html } from '../html.js';
import { flowText } from './flow.js';

// Badges says that a queue is paused or limited, that keys of it are halted, and how many shards it has.
export function Badges({ q }) {
  const halted = q.flow?.keys?.halted;
  return html`<span class="badges">
    ${q.paused && html`<span class="badge">paused</span> `}
    ${q.flow && html`<span class="badge" title=${flowText(q.flow)}>limits</span> `}
    ${halted > 0 && html`<span class="badge stopped" title=${`${plural(halted, 'key')} halted by dead messages`}>
      ${number(halted)} halted</span> `}
    ${q.shards > 1 && html`<span class="badge">${plural(q.shards, 'shard')}</span>`}
  </span>`;
}
