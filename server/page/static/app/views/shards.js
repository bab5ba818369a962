// The shards of a queue, if it has several or their number changes: their places, their messages and the moves.
import { get, path } from '../api.js';
import { number, plural, short } from '../format.js';
import { html } from '../html.js';
import { useLoad } from '../ui.js';

const look = 5000; // ms between looks at them

const sizeOf = (shard) => shard.scheduled + shard.ready + shard.leased + shard.dead;

// movingText says how far messages have moved. Of the messages of a queue that gets more shards, the new ones get their
// share.
function movingText({ shards, from, each }) {
  const sum = (some) => some.reduce((total, shard) => total + sizeOf(shard), 0);
  const rest = sum(each.slice(Math.min(shards, from)));
  if (shards < from) return `${plural(rest, 'message')} still to move`;
  return `${number(rest)} of about ${plural(Math.floor((sum(each) * (shards - from)) / shards), 'message')} moved`;
}

export function Shards({ queue }) {
  const { data } = useLoad((signal) => get(path('queues', queue, 'shards'), { signal }), [queue], look);
  if (!data || (data.shards === 1 && !data.moving)) return null;
  const shards = plural(data.shards, 'shard');
  return html`<div class="shards">
    <p class="faint">${data.moving ? `changing from ${data.from} to ${shards}: ${movingText(data)}${
      data.stopped ? '; no message starts until the messages that are due have moved' : ''}` : shards}</p>
    <ol aria-label=${`Shards of ${queue}`}>${data.each.map((shard) => html`<${Shard} key=${shard.shard} of=${shard}
      leaves=${data.moving && shard.shard >= data.shards} />`)}</ol>
  </div>`;
}

function Shard({ of, leaves }) {
  const count = (state) => of[state] > 0 && html`<span class=${`state ${state}`}
    title=${`${number(of[state])} ${state}`}>${short(of[state])}<span class="hidden"> ${state}</span></span>`;
  return html`<li class="row counts"><span class="faint">${of.shard}${of.server && ` · ${of.server}`}</span>
    ${of.error ? html`<span class="late" title=${of.error.message}>does not answer</span>` :
      ['scheduled', 'ready', 'leased', 'dead'].map(count)}
    ${!of.error && !sizeOf(of) && html`<span class="faint">empty</span>`}
    ${leaves && html`<span class="badge">leaves</span>`}</li>`;
}
