// The latest events of all processes, as they happen, with a filter.
import { duration, exact, iso, millis, plural } from '../format.js';
import { html, useEffect, useRef, useState } from '../html.js';
import { useKeys } from '../keys.js';
import { follow, now } from '../live.js';
import { Empty, Table } from '../ui.js';
import { go, Link, useUrl } from '../url.js';

const kept = 500;

const kinds = ['sent', 'claimed', 'acked', 'nacked', 'died', 'snoozed', 'given_back', 'released', 'buried', 'expired',
  'dropped', 'lease_lost', 'cancelled', 'rescheduled', 'edited', 'replayed', 'purged', 'forwarded', 'paused',
  'resumed', 'key_resumed', 'duplicate', 'run_missed', 'run_skipped'];
const bad = new Set(['nacked', 'died', 'buried', 'expired', 'dropped', 'lease_lost', 'unsettled', 'run_missed',
  'missed']);

export function Events() {
  const params = useUrl();
  const [connected, setConnected] = useState(false);
  const [paused, setPaused] = useState(false);
  const [, again] = useState(0);
  const list = useRef({ events: [], waiting: [], count: 0 });
  const key = JSON.stringify([params.queue, params.kind, params.id]);

  useEffect(() => {
    list.current = { events: [], waiting: [], count: 0 };
    const kind = params.kind?.split(',');
    return follow({ queue: params.queue, kind, id: params.id }, {
      event: (event) => {
        const l = list.current;
        l.count += 1;
        l.waiting.push({ ...event, number: l.count });
        if (l.waiting.length > kept) l.waiting.shift();
      },
      state: setConnected,
    });
  }, [key]);
  useEffect(() => { // not for each event: there may be thousands a second
    const timer = setInterval(() => {
      const l = list.current;
      if (paused || !l.waiting.length) return;
      l.events = [...l.waiting.reverse(), ...l.events].slice(0, kept);
      l.waiting = [];
      again((n) => n + 1);
    }, 250);
    return () => clearInterval(timer);
  }, [paused, key]);
  useKeys({ p: ['stop or go on with events', () => setPaused(!paused)] });

  const { events, waiting, count } = list.current;
  const set = (name) => (event) => go({ [name]: event.target.value || undefined }, { replace: true });
  return html`<main><section class="card" aria-labelledby="events-title">
    <header class="row">
      <h1 id="events-title">Events</h1>
      <span class=${connected ? 'live' : 'live off'}>${connected ? 'live' : 'not connected'}</span>
      <span class="faint">${plural(count, 'event')}, the last ${kept} are kept</span>
      <span class="grow"></span>
      <button aria-pressed=${paused} onClick=${() => setPaused(!paused)}>
        ${paused ? `Go on (${waiting.length} waiting)` : 'Stop (p)'}</button>
    </header>
    <div class="row filters">
      <label>Queue <input value=${params.queue ?? ''} onChange=${set('queue')} placeholder="all" /></label>
      <label>Kind <select value=${params.kind ?? ''} onChange=${set('kind')}>
        <option value="">all</option><option value="nacked,died,buried,expired,dropped,lease_lost">failures</option>
        ${kinds.map((name) => html`<option value=${name}>${name.replaceAll('_', ' ')}</option>`)}
      </select></label>
      <label>Id <input value=${params.id ?? ''} onChange=${set('id')} placeholder="all" /></label>
      ${(params.queue || params.kind || params.id) && html`<${Link} fresh to=${{ view: 'events' }}>clear<//>`}
    </div>
    ${!events.length && html`<${Empty} title="Nothing has happened since you are here.">
      Events appear as they happen.<//>`}
    ${events.length > 0 &&
      html`<${Table} tall class="events" label="Latest events"
        head=${['Time', 'Event', 'Queue', 'Id', 'Details', 'Process']}>
        ${events.map((e) => html`<${Event} key=${e.number} e=${e} />`)}<//>`}
  </section></main>`;
}

function Event({ e }) {
  const at = Date.parse(e.time);
  const details = [
    e.missed && `${e.missed} events could not be followed`,
    e.attempt > 0 && `attempt ${e.attempt}`,
    e.lateness && `${duration(millis(e.lateness))} late`,
    e.duration && `took ${duration(millis(e.duration))}`,
    e.count > 0 && plural(e.count, 'message'),
    e.error,
  ].filter(Boolean).join(' · ');
  return html`<tr>
    <td title=${at ? iso(at) : ''}>${at ? exact(at, now()) : ''}</td>
    <td><span class=${bad.has(e.kind) ? 'kind bad' : 'kind'}>${e.kind.replaceAll('_', ' ')}</span></td>
    <td>${e.queue && html`<${Link} fresh to=${{ queue: e.queue }}>${e.queue}<//>`}</td>
    <td class="id">${e.id && html`<${Link} fresh to=${{ queue: e.queue, message: e.id }}>${e.id}<//>`}</td>
    <td class="payload"><bdi>${details}</bdi></td>
    <td class="faint">${e.process && `${e.process.name || e.process.host} ${e.process.pid}`}</td>
  </tr>`;
}
