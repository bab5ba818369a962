// Settings of a queue that only its page has: how long dead messages are kept, and the number of shards.
import { get, path, put } from '../api.js';
import { duration, millis, number, plural } from '../format.js';
import { html } from '../html.js';
import { Field, Form, notify, open } from '../ui.js';
import { durationPattern } from '../when.js';

// retentionText says how long and how many dead messages are kept.
export function retentionText({ dead_max_age: age, dead_max_count: count, dead_dropped: dropped }) {
  const limits = [age && `for ${duration(millis(age))}`, count && `at most ${number(count)}`].filter(Boolean);
  return `${limits.join(', ') || 'all, for ever'}${dropped > 0 ? `; ${plural(dropped, 'message')} dropped` : ''}`;
}

// setRetention asks for the limits of dead messages and sets them.
export const setRetention = (q) => open(Retention, { q });

function Retention({ q }) {
  const submit = async ({ age, count }) => {
    await put(path('queues', q.queue, 'dead-retention'),
      { max_age: age || undefined, max_count: count ? Number(count) : undefined });
    notify(age || count ? `${q.queue} keeps fewer dead messages` : `${q.queue} keeps all dead messages`);
  };
  return html`<${Form} title=${`Dead messages of ${q.queue}`} action="Save" submit=${submit}>
    <p class="faint">Workers drop dead messages beyond these limits, the oldest first, and they cannot be brought back.
      An empty field is no limit.</p>
    <${Field} label="Keep for" name="age" value=${q.dead_max_age} autofocus pattern=${durationPattern}
      hint="Such as 12h or 30d" />
    <${Field} label="Keep at most" name="count" type="number" min="1" value=${q.dead_max_count} />
  <//>`;
}

// setShards asks for the number of shards and begins the change.
export async function setShards(q) {
  const { shards, moving } = await get(path('queues', q.queue, 'shards'));
  open(SetShards, { q, shards, moving });
}

function SetShards({ q, shards, moving }) {
  const submit = async ({ count }) => {
    await put(path('queues', q.queue, 'shards'), { shards: Number(count) });
    notify(`${q.queue} changes to ${plural(Number(count), 'shard')}`);
  };
  return html`<${Form} title=${`Shards of ${q.queue}`} action="Change" submit=${submit} disabled=${moving}>
    <p class="faint">Messages move to their shards while the queue is used. The number can be changed again 7 minutes
      after all have moved.</p>
    ${moving && html`<p class="late">It changes to ${shards} now.</p>`}
    <${Field} label="Shards" name="count" type="number" min="1" max="64" required value=${shards} autofocus />
  <//>`;
}
