// Schedules: their runs, on a calendar and as a list, and changing them.
import { get, path, post, query, remove } from '../api.js';
import { duration, local, millis, number, plural, timeZone } from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { payloadText } from '../json.js';
import { now } from '../live.js';
import { optionNames } from '../options.js';
import {
  attempt, Confirm, Empty, Facts, Failure, Field, Form, Loaded, notify, open, Panel, Table, Time, useLoad,
} from '../ui.js';
import { change, offer } from '../undo.js';
import { go, Link, useUrl } from '../url.js';
import { may } from '../who.js';
import { payloadOf } from './actions.js';
import { Calendar } from './calendar.js';

export function Schedules() {
  const { schedule } = useUrl();
  const loaded = useLoad((signal) => get(path('schedules') + query({ limit: 500 }), { signal }), [], 5000);
  return html`<main class="columns">
    <section class="card list" aria-labelledby="schedules-title">
      <header class="row"><h1 id="schedules-title">Schedules</h1><span class="grow"></span>
        ${may('operate') && html`<button onClick=${() => open(Edit, { done: loaded.reload })}>New schedule…</button>`}
          </header>
      <${Loaded} of=${loaded}
        empty=${(data) => !data.items.length && html`<${Empty} title="There are no schedules.">
        Create one here, or with <code>later schedule put</code>.<//>`}>${(data) => html`
        <${Table} label="All schedules" numbers=${3} head=${['Name', 'Rule', 'Next run', 'Runs', 'Missed',
          'Skipped']}>
          ${data.items.map((s) => html`<tr key=${s.name} class=${s.name === schedule ? 'shown' : ''}>
            <td><${Link} to=${{ schedule: s.name }} aria-current=${s.name === schedule ? 'true' : undefined}>
              ${s.name}<//> ${s.paused && html`<span class="badge">paused</span>`}</td>
            <td>${ruleOf(s)}</td>
            <td>${s.next_run ? html`<${Time} at=${s.next_run.due} />` : s.finished ? 'finished' : '–'}</td>
            <td class="number">${number(s.runs)}</td>
            <td class="number">${leftOut(s.missed_runs)}</td>
            <td class="number">${leftOut(s.skipped_runs)}</td>
          </tr>`)}<//>
        ${data.unreadable?.map((p) => html`<${Failure} error=${p} />`)}
        ${data.next && html`<p class="faint">The list shows the first ${data.items.length}.</p>`}
        <${Upcoming} />`}<//>
    </section>
    ${schedule && html`<${Schedule} key=${schedule} name=${schedule} changed=${loaded.reload} />`}
  </main>`;
}

// leftOut returns the number of runs that were left out.
const leftOut = (n) => n > 0 ? html`<span class="late">${number(n)}</span>` : '0';

// leftOutAt adds the time of the last one.
const leftOutAt = (n, last) => html`${leftOut(n)}${last && html`, the last <${Time} at=${last} />`}`;

// ruleOf returns the rule of a schedule in short.
function ruleOf(s) {
  const rule = s.cron ?? (s.every && `every ${duration(millis(s.every)).replace(/^1 /, '')}`) ?? s.rrule ?? (s.times &&
    plural(s.times.length, 'time')) ?? (s.series && 'series');
  return html`<code>${rule}</code>${s.time_zone && html` <span class="faint">${s.time_zone}</span>`}`;
}

function Upcoming() {
  const loaded = useLoad((signal) => get(path('schedules-upcoming') + query({ limit: 20 }), { signal }), [], 5000);
  return html`<h2>Next runs of all schedules</h2>
    <${Loaded} of=${loaded}>${({ items }) => html`<ol class="plain">${items.map((r) => html`<li key=${r.id}>
      <${Time} at=${r.due} /> <${Link} to=${{ schedule: r.schedule }}>${r.schedule}<//></li>`)}</ol>`}<//>`;
}

function Schedule({ name, changed }) {
  const loaded = useLoad((signal) => get(path('schedules', name), { signal }), [name], 3000);
  const both = () => { loaded.reload(); changed(); };
  const tell = (action, done) => attempt('', async () => {
    const { undo } = await change('POST', path('schedules', name, action));
    offer(done, undo, { said: `${name} is as before`, done: both });
  }).then(both);
  const trigger = () => open(Confirm, {
    title: `Run ${name} now?`, action: 'Run it now', submit: () => { tell('trigger', `${name} runs now`); },
    text: `A message is sent to the queue ${loaded.data.queue}, due at once. This cannot be undone.`,
  });
  return html`<${Panel} card title=${name} back=${() => go({ schedule: undefined })}>
    <${Loaded} of=${loaded}>${(s) => html`
      ${may('operate') && html`<div class="row actions">
        <button onClick=${trigger}>Run now…</button>
        ${s.paused ? html`<button onClick=${() => tell('resume', `${name} runs again`)}>Resume</button>` :
          html`<button onClick=${() => open(Pause, { name, done: both })}>Pause…</button>`}
        <button onClick=${() => open(Edit, { schedule: s, done: both })}>Edit…</button>
        <button onClick=${() => open(Backfill, { name, done: both })}>Backfill…</button>
        <button class="danger" onClick=${() => open(Delete, { name, done: changed })}>Delete…</button>
      </div>`}
      ${s.paused && html`<p class="why">It is paused${s.pause_note && `: ${s.pause_note}`}.</p>`}
      <${Facts} of=${[
        ['Rule', ruleOf(s)],
        ['Queue', html`<${Link} fresh to=${{ queue: s.queue }}>${s.queue}<//>`],
        ['Next run', s.next_run && html`<${Time} at=${s.next_run.due} />`],
        ['Last run', s.last_run && html`<${Time} at=${s.last_run.due ?? s.last_run.nominal} />`],
        ['Runs', html`${number(s.runs)}${s.triggered_runs > 0 && `, ${number(s.triggered_runs)} triggered`}`],
        ['Missed', leftOutAt(s.missed_runs, s.last_missed)],
        ['Skipped', leftOutAt(s.skipped_runs, s.last_skipped)],
        ['While unfinished', s.unfinished],
        ['Set', s.set],
        ['Created', html`<${Time} at=${s.created} />`],
        ['Payload', payloadText(s) && html`<code>${payloadText(s).slice(0, 500)}</code>`],
      ]} />
      <${Calendar} name=${name} created=${s.created} generation=${s.generation} />`}<//>
  <//>`;
}

function Pause({ name, done }) {
  return html`<${Form} title=${`Pause ${name}?`} action="Pause"
    submit=${async ({ note }) => {
      const { undo } = await change('POST', path('schedules', name, 'pause'), { note });
      offer(`${name} is paused`, undo, { said: `${name} runs again`, done });
      done();
    }}>
    <p>It does not run until it is resumed.</p>
    <${Field} label="Note" name="note" maxlength="500" hint="For whoever asks why" autofocus /><//>`;
}

function Delete({ name, done }) {
  const submit = async () => {
    await remove(path('schedules', name));
    go({ schedule: undefined }, { replace: true });
    done();
  };
  return html`<${Confirm} title=${`Delete ${name}?`} text="It does not run any more. Messages of its runs stay."
    action="Delete" danger submit=${submit} />`;
}

function Backfill({ name, done }) {
  const [range, setRange] = useState({});
  const [runs, setRuns] = useState();
  const set = (field) => (event) => { setRange({ ...range, [field]: event.target.value }); setRuns(undefined); };
  const body = () => ({ from: new Date(range.from).toISOString(), to: new Date(range.to).toISOString() });
  const submit = async () => {
    if (!runs) {
      setRuns(await post(path('schedules', name, 'backfill'), { ...body(), dry_run: true }));
      return true; // stay for the confirmation
    }
    const { sent } = await post(path('schedules', name, 'backfill'), body());
    notify(`${plural(sent, 'run')} of ${name} sent`);
    return done();
  };
  return html`<${Form} title=${`Backfill ${name}`} action=${runs ? 'Send them' : 'Look how many'} submit=${submit}>
    <p>Sends the runs of a past range, each at most once.</p>
    <${Field} label="From" type="datetime-local" required onInput=${set('from')} />
    <${Field} label="To" type="datetime-local" required onInput=${set('to')} hint=${`On your clock (${timeZone})`} />
    ${runs && html`<p aria-live="polite"><strong>${plural(runs.runs, 'run')}</strong> in the range</p>`}
  <//>`;
}

const rules = [['cron', 'Cron', '0 9 * * 1-5'], ['every', 'Interval', '15m'],
  ['rrule', 'RRULE', 'FREQ=MONTHLY;BYDAY=-1FR']];

// fieldsOf returns the fields of a schedule that a PUT takes, without the ones that only the server sets.
function fieldsOf(s) {
  const names = ['queue', 'set', 'payload', 'payload_text', 'payload_base64', 'headers', 'max_attempts', 'timeout',
    'expire_after', ...optionNames, 'dedup_window', 'missed', 'missed_within', 'missed_max', 'unfinished', 'cron',
    'every', 'rrule', 'times', 'series', 'time_zone', 'start', 'end', 'exclude', 'jitter', 'max_runs', 'gap',
    'overlap'];
  return Object.fromEntries(names.filter((n) => s[n] !== undefined).map((n) => [n, s[n]]));
}

function Edit({ schedule, done }) {
  const known = schedule && rules.find(([name]) => schedule[name]);
  const [draft, setDraft] = useState(schedule ? fieldsOf(schedule) :
    { queue: '', cron: '0 9 * * *', time_zone: timeZone });
  const [payload, setPayload] = useState(payloadText(draft) ?? '');
  const [way, setWay] = useState(known?.[0] ?? (schedule ? 'other' : 'cron'));
  const set = (field) => (event) => setDraft({ ...draft, [field]: event.target.value || undefined });
  const choose = (name) => {
    const next = { ...draft };
    for (const [other] of rules) delete next[other];
    setWay(name);
    setDraft({ ...next, [name]: rules.find(([n]) => n === name)[2],
      time_zone: name === 'every' ? undefined : draft.time_zone ?? timeZone });
  };
  const submit = async ({ name }) => {
    const stored = schedule?.name ?? name;
    const sent = { ...draft, payload: undefined, payload_text: undefined, ...payload && payloadOf(payload, draft) };
    const { undo } = await change('PUT', path('schedules', stored), sent);
    offer(`${stored} is stored`, undo, { said: `${stored} is as before`, done });
    go({ schedule: stored });
    done();
  };
  return html`<${Form} title=${schedule ? `Edit ${schedule.name}` : 'New schedule'} action="Store" submit=${submit}>
    ${!schedule && html`<${Field} label="Name" name="name" required autofocus maxlength="80" />`}
    <${Field} label="Queue" required value=${draft.queue} onInput=${set('queue')} maxlength="128" />
    ${way !== 'other' && html`<fieldset><legend>Rule</legend>
      <div class="row">${rules.map(([name, label]) => html`<label class="choice">
        <input type="radio" name="way" checked=${way === name} onChange=${() => choose(name)} /> ${label}</label>`)}
          </div>
      <${Field} label=${rules.find(([n]) => n === way)[1]} required value=${draft[way]} onInput=${set(way)} class="code"
        spellcheck="false" />
      ${way !== 'every' && html`<${Field} label="Time zone" value=${draft.time_zone} onInput=${set('time_zone')}
        placeholder="UTC" />`}
    </fieldset>`}
    <${Field} label="Payload"><textarea rows="3" spellcheck="false"
      onInput=${(event) => setPayload(event.target.value)}>
      ${payload}</textarea><//>
    <${Preview} draft=${draft} />
  <//>`;
}

// Preview lists the next runs of a schedule while it is written.
function Preview({ draft }) {
  const rule = JSON.stringify([draft.cron, draft.every, draft.rrule, draft.times, draft.series, draft.time_zone,
    draft.start, draft.end, draft.exclude, draft.jitter]);
  const [state, setState] = useState({});
  useEffect(() => {
    const abort = new AbortController();
    const look = () => post(path('schedule-preview') + query({ limit: 5 }), draft, { signal: abort.signal }).then(
      ({ items }) => setState({ runs: items }), (error) => abort.signal.aborted || setState({ error }));
    const timer = setTimeout(look, 200);
    return () => { clearTimeout(timer); abort.abort(); };
  }, [rule]);
  return html`<section class="preview" aria-live="polite"><h3>Next runs</h3>
    ${state.error && html`<p class="late">${state.error.message}</p>`}
    ${state.runs && !state.runs.length && html`<p>None.</p>`}
    <ol class="plain">${state.runs?.map((r) =>
      html`<li>${r.local?.slice(0, 16).replace('T', ' ')} <span class="faint">
        ${r.time_zone} · here ${local(Date.parse(r.due), now(), false)}</span></li>`)}</ol>
  </section>`;
}

