// Topics with their subscriptions, and where workers forward messages to.
import { get, path, post, put, query, remove } from '../api.js';
import { duration, iso, millis, number, plural, short, timeZone } from '../format.js';
import { html, useState } from '../html.js';
import { Confirm, Empty, Facts, Field, Form, Loaded, notify, open, Panel, Table, Time, useLoad } from '../ui.js';
import { go, Link, useUrl } from '../url.js';
import { may } from '../who.js';

export function Topics() {
  const { topic } = useUrl();
  const loaded = useLoad((signal) => get(path('topics') + query({ limit: 500 }), { signal }), [], 3000);
  return html`<main class="columns">
    <section class="card list" aria-labelledby="topics-title">
      <header class="row"><h1 id="topics-title">Topics</h1><span class="grow"></span>
        ${may('operate') && html`<button onClick=${() => open(Subscribe, { done: loaded.reload })}>
          Subscribe a queue…</button>`}</header>
      <${Loaded} of=${loaded} empty=${(data) => !data.items.length && html`<${Empty} title="There are no topics.">
        A topic sends each message to all queues that are subscribed:
        ${' '}<code>later topic subscribe orders mail</code><//>`}>${(data) => html`
        <${Table} label="All topics" numbers=${5} head=${['Topic', 'Subscribed', 'Scheduled', 'Waiting', 'Dead',
          'Retained']}>
          ${data.items.map((t) => html`<tr key=${t.topic} class=${t.topic === topic ? 'shown' : ''}>
            <td><${Link} to=${{ topic: t.topic }} aria-current=${t.topic === topic ? 'true' : undefined}>
              ${t.topic}<//></td>
            <td class="number">${t.queues.length}</td><td class="number">${short(t.scheduled)}</td>
            <td class="number">${short(t.ready + t.leased)}</td>
            <td class="number">${t.dead > 0 ? html`<span class="late">${short(t.dead)}</span>` : '0'}</td>
            <td class="number">${short(t.history)}</td>
          </tr>`)}<//>`}<//>
      <${Destinations} />
    </section>
    ${topic && html`<${Topic} key=${topic} name=${topic} changed=${loaded.reload} />`}
  </main>`;
}

function Topic({ name, changed }) {
  const loaded = useLoad((signal) => get(path('topics', name), { signal }), [name], 3000);
  const both = () => { loaded.reload(); changed(); };
  return html`<${Panel} card title=${name} back=${() => go({ topic: undefined })}>
    <${Loaded} of=${loaded}>${(t) => html`
      <${Facts} of=${[
        ['Not distributed yet',
          html`<${Link} fresh to=${{ queue: `topic:${name}` }}>${number(t.scheduled + t.ready + t.leased)}<//>`],
        ['Dead', t.dead > 0 &&
          html`<${Link} fresh to=${{ queue: `topic:${name}`, state: 'dead' }}>${number(t.dead)}<//>`],
        ['Without subscribers', t.drop_unsubscribed ? 'messages become dead' : 'messages wait'],
        ['Retains', t.history_age || t.history_count ? [t.history_age && duration(millis(t.history_age)),
          t.history_count && plural(t.history_count, 'message')].filter(Boolean).join(', ') : 'nothing'],
        ['Retained now', t.history > 0 && number(t.history)],
      ]} />
      <h3>Subscribed queues</h3>
      ${!t.subscriptions.length && html`<p class="faint">None.</p>`}
      <ul class="plain">${t.subscriptions.map((s) => html`<li class="subscription" key=${s.queue}>
        <div class="row"><${Link} fresh to=${{ queue: s.queue }}><strong>${s.queue}</strong><//>
          ${s.paused && html`<span class="badge">paused</span>`}<span class="grow"></span>
          <span class="faint">${short(s.ready)} ready, ${short(s.dead)} dead</span></div>
        ${s.where && html`<p><code>${s.where}</code></p>`}
        ${may('operate') && html`<div class="row">
          ${t.history > 0 && html`<button class="quiet"
            onClick=${() => open(Rewind, { topic: name, queue: s.queue, where: s.where, done: both })}>
            Rewind…</button>`}
          <button class="quiet" onClick=${() => open(Unsubscribe, { topic: name, queue: s.queue, done: both })}>
            End the subscription…</button></div>`}
      </li>`)}</ul>
      ${may('operate') && html`<button onClick=${() => open(Subscribe, { topic: name, done: both })}>
        Subscribe a queue…</button>`}`}<//>
  <//>`;
}

// Subscribe asks for a queue that is to receive the messages of a topic.
export function Subscribe({ topic, done }) {
  const submit = async (fields) => {
    await put(path('topics', topic ?? fields.topic, 'subscriptions', fields.queue),
      { where: fields.where || undefined });
    notify(`${fields.queue} is subscribed`);
    go({ topic: topic ?? fields.topic });
    done();
  };
  return html`<${Form} title=${topic ? `Subscribe a queue to ${topic}` : 'Subscribe a queue to a topic'}
    action="Subscribe" submit=${submit}>
    ${!topic && html`<${Field} label="Topic" name="topic" required autofocus maxlength="114" />`}
    <${Field} label="Queue" name="queue" required autofocus=${Boolean(topic)} maxlength="128" />
    <${Field} label="Only where" name="where" maxlength="2048" placeholder="region=eu, kind in (a, b), !debug"
      hint="A condition on headers; empty for all messages" />
  <//>`;
}

function Unsubscribe({ topic, queue, done }) {
  const submit = async () => {
    await remove(path('topics', topic, 'subscriptions', queue));
    notify(`${queue} is not subscribed any more`);
    done();
  };
  return html`<${Confirm} title=${`End the subscription of ${queue}?`} danger action="End it" submit=${submit}
    text=${`The queue keeps its messages, and gets no more of ${topic}.`} />`;
}

// Rewind says how many messages there are from a time on before it sends them.
function Rewind({ topic, queue, where, done }) {
  const [from, setFrom] = useState('');
  const [looked, setLooked] = useState({});
  const found = looked.from === from ? looked.found : undefined; // another time is looked at again
  const submit = async () => {
    const at = new Date(from).toISOString();
    if (found === undefined) {
      setLooked({ from, found: await countRetained(topic, at) });
      return true; // stay for the confirmation
    }
    const { sent, kept } = await post(path('topics', topic, 'rewind'), { queue, from: at });
    notify(`${plural(sent, 'message')} sent again to ${queue}${kept > 0 ? `, ${number(kept)} left out` : ''}`);
    return done();
  };
  return html`<${Form} title=${`Rewind ${queue}`} action=${found === undefined ? 'Look how many' : 'Send again'}
    disabled=${found === 0} submit=${submit}>
    <p>The queue receives again what ${topic} retains, from a time on.</p>
    <${Field} label="From" type="datetime-local" step="1" required autofocus value=${from}
      onInput=${(event) => setFrom(event.target.value)} hint=${`On your clock (${timeZone})`} />
    ${found !== undefined && html`<p aria-live="polite">
      <strong>${plural(found, 'message')}</strong> retained from then on.
      Those that the queue still has or remembers are left out
        ${where && `, and those that do not match ${where}`}.</p>`}
  <//>`;
}

async function countRetained(topic, from) {
  const to = iso(Date.UTC(2199, 0));
  const { bands } = await get(path('overview') + query({ queue: `topic-history:${topic}`, from, to, buckets: 1 }));
  return bands[0].counts[0];
}

// Destinations are the queues that live workers forward, which they report with their heartbeats.
function Destinations() {
  const loaded = useLoad((signal) => get(path('workers'), { signal }), [], 5000);
  const routes = (loaded.data?.items ?? []).flatMap((w) => (w.forwards ?? []).map((f) => ({ ...f, worker: w })));
  if (!routes.length) return null;
  return html`<h2>Destinations</h2><ul class="plain">${routes.map((r) => html`<li>
    <${Link} fresh to=${{ queue: r.queue }}>${r.queue}<//> → <code>${r.to}</code>
    <span class="faint"> by ${r.worker.name}, ${r.worker.state}, heartbeat <${Time} at=${r.worker.heartbeat}
      only="relative" /></span></li>`)}</ul>`;
}
