// Changing all messages that match: first the number and ten examples, then a confirmation, then progress.
import { get, path, post, query, remove } from '../api.js';
import { local, number, plural } from '../format.js';
import { html, useEffect, useRef, useState } from '../html.js';
import { payloadText } from '../json.js';
import { now } from '../live.js';
import { Failure, Field, Table } from '../ui.js';
import { undoAll } from '../undo.js';
import { durationPattern, When, whenOf } from '../when.js';
import { hidesPayloads } from '../who.js';

const actions = {
  run: { label: 'Run now', states: ['scheduled'],
    about: 'They are due at once, and run as soon as workers are free. This cannot be undone.' },
  shift: { label: 'Shift', states: ['scheduled', 'ready'],
    about: 'Each due time moves by the same duration. This can be undone.' },
  reschedule: { label: 'Reschedule', states: ['scheduled', 'ready'],
    about: 'All of them are due at one time. This can be undone.' },
  replay: { label: 'Replay', states: ['dead'],
    about: 'They become live again with all their attempts. This cannot be undone.' },
  cancel: { label: 'Cancel', states: ['scheduled', 'ready', 'dead'], danger: true,
    about: 'They are removed. This can be undone for ten minutes; download them first to have them longer.' },
};
const mostCopies = 10_000; // of cancelled messages that a server keeps, so that it can restore them

// Run is operations on several queues and states, which are one to whoever looks.
class Run {
  constructor(sources, body, show) {
    Object.assign(this, { sources, body, show, all: [], stopped: false });
  }

  // go starts an operation for each source and waits for its end.
  async go() {
    for (const { queue, state, ids } of this.sources) {
      if (this.stopped) return;
      await this.wait(await post(path('queues', queue, 'bulk'), { ...this.body,
        filter: { ...this.body.filter, state, ids } }));
    }
  }

  async wait(op) {
    const at = this.all.push(op) - 1;
    this.show();
    while (this.all[at].state === 'running') {
      this.all[at] = await get(path('operations', op.id) + query({ wait: '500ms' }));
      this.show();
    }
    if (this.all[at].error) throw new Error(this.all[at].error.detail);
  }

  stop() {
    this.stopped = true;
    return Promise.all(this.all.filter((op) => op.state === 'running').map((op) => remove(path('operations', op.id))));
  }

  sum(field) {
    return this.all.reduce((n, op) => n + op[field], 0);
  }
}

export function Bulk({ sources, filter, state, first, selected, done, close }) {
  const possible = Object.keys(actions).filter((name) => (
    actions[name].states.some((s) => s === state || (state === 'pending' && s !== 'dead'))));
  const [action, setAction] = useState(first ?? possible[0]);
  const [step, setStep] = useState({ name: 'choose' });
  const [, again] = useState(0);
  const run = useRef();
  useEffect(() => () => { if (run.current?.body.dry_run) run.current.stop(); }, []);

  const start = async (body, next) => {
    const of = actions[action].states.includes(state) || state === 'pending' ?
      sources.filter((s) => !s.state || actions[action].states.includes(s.state)) : sources;
    const begun = new Run(of, body, () => again((n) => n + 1));
    run.current = begun;
    try {
      await begun.go();
      if (body.dry_run && begun.stopped) return; // the dialog is where it began
      setStep({ name: next, body });
    } catch (error) {
      setStep({ name: body.dry_run ? 'choose' : 'done', error, body });
    }
    if (!body.dry_run) done();
  };
  const look = (event) => {
    event.preventDefault();
    const fields = Object.fromEntries(new FormData(event.target));
    const body = { filter, action };
    if (action === 'shift') body.by = (fields.direction === 'earlier' ? '-' : '') + fields.by;
    if (action === 'reschedule' || action === 'replay') Object.assign(body, whenOf(fields));
    if (fields.rate) body.per_second = Number(fields.rate);
    setStep({ name: 'looking' });
    start({ ...body, dry_run: true }, 'confirm');
  };
  const change = (event) => {
    event.preventDefault();
    setStep({ name: 'running', body: step.body });
    start({ ...step.body, dry_run: undefined }, 'done');
  };
  const parts = { choose: Choose, looking: Looking, confirm: Sure, running: Running, done: Done };
  return html`<h2 id="dialog-title">
    ${selected ? `Change ${plural(selected, 'selected message')}` : 'Change all messages that match'}</h2>
    <${parts[step.name]} ...${{ step, setStep, action, setAction, possible, look, change, run: run.current, filter,
      selected, close, done }} />`;
}

function Choose({ step, action, setAction, possible, look, close }) {
  return html`<form onSubmit=${look}>
    <fieldset><legend>What to do</legend><div class="row">${possible.map((name) => html`<label class="choice">
      <input type="radio" name="action" value=${name} checked=${name === action}
        onChange=${() => setAction(name)} /> ${actions[name].label}
    </label>`)}</div></fieldset>
    <p class="faint">${actions[action].about}</p>
    ${action === 'shift' && html`<div class="row">
      <${Field} label="By" name="by" required autofocus pattern=${durationPattern} placeholder="2h"
        hint="such as 30s, 15m or 2h" />
      <label class="field"><span>Direction</span><select name="direction"><option>later</option>
        <option>earlier</option></select></label>
    </div>`}
    ${(action === 'reschedule' || action === 'replay') && html`<${When} allowNow=${action === 'replay'} />`}
    <${Field} label="Messages a second" name="rate" type="number" min="1" max="1000000" placeholder="no limit"
      hint="Spares the workers and what they call" />
    <${Failure} error=${step.error} />
    <div class="buttons"><button type="button" onClick=${close}>Close</button>
      <button class="primary">See what matches</button></div>
    <p class="faint">Nothing is changed yet.</p>
  </form>`;
}

function Looking({ run, setStep }) {
  return html`<p aria-live="polite">
    Looked at ${plural(run?.sum('looked') ?? 0, 'message')}, ${plural(run?.sum('matched') ?? 0, 'message')} match…</p>
    <div class="buttons"><button onClick=${() => { run.stop(); setStep({ name: 'choose' }); }}>Stop</button></div>`;
}

function Sure({ setStep, action, change, run, filter, selected }) {
  const matched = run.sum('matched');
  const [typed, setTyped] = useState('');
  const examples = run.all.flatMap((op) => (op.examples ?? [])).slice(0, 10);
  const time = now();
  if (!matched) {
    return html`<p>${selected ? 'They have changed or gone meanwhile.' : 'Nothing matches.'}</p>
      <div class="buttons"><button onClick=${() => setStep({ name: 'choose' })}>
      Back</button></div>`;
  }
  return html`<form onSubmit=${change}>
    <p><strong>${plural(matched, 'message')}</strong> ${matched === 1 ? 'matches' : 'match'}
      ${examples.length < matched && `, such as these ${examples.length}`}:</p>
    <${Table} label="Examples" head=${['Due', 'Queue', 'Id', 'Payload']}>
      ${examples.map((m) =>
        html`<tr><td>${m.due ? local(Date.parse(m.due), time) : '–'}</td><td>${m.queue}</td><td>${m.id}</td>
        <td class="payload"><bdi>${(payloadText(m) ?? '').slice(0, 80)}</bdi></td></tr>`)}<//>
    ${action === 'cancel' && matched > mostCopies && html`<p class="late">They are too many to be restored
      afterwards: a server keeps ${number(mostCopies)} of them.</p>`}
    ${action === 'cancel' && !selected && !hidesPayloads() &&
      html`<p class="row">${run.sources.map(({ queue, state }) =>
        html`<a class="button" download=${`${queue}-${state ?? 'group'}.ndjson`}
          href=${path('queues', queue, 'export') + query({ ...filter, state })}>
          Download ${run.sources.length > 1 ? `${queue} ${state ?? ''}` : 'them'}</a>`)}</p>`}
    ${selected && run.sum('skipped') > 0 && html`<p class="late">
      ${plural(run.sum('skipped'), 'selected message')} changed or went meanwhile, and stay as they are.</p>`}
    ${!selected && html`<${Field}
      label=${`Type ${matched} to ${actions[action].label.toLowerCase()} ${matched === 1 ? 'it' : 'them'}`}
      name="count" inputmode="numeric"
      autofocus autocomplete="off" value=${typed} onInput=${(event) => setTyped(event.target.value)} />`}
    <div class="buttons"><button type="button" onClick=${() => setStep({ name: 'choose' })}>Back</button>
      <button class=${actions[action].danger ? 'danger' : 'primary'}
        disabled=${!selected && typed.replace(/\D/g, '') !== String(matched)}>
        ${actions[action].label} ${plural(matched, 'message')}</button></div>
  </form>`;
}

function Running({ run }) {
  const [changed, matched] = [run.sum('changed') + run.sum('skipped'), run.sum('matched')];
  return html`<p aria-live="polite">${number(changed)} of ${plural(matched, 'message')}…</p>
    <progress value=${changed} max=${Math.max(1, matched)} aria-label="Progress"></progress>
    <div class="buttons"><button onClick=${() => run.stop()}>Stop</button></div>
    <p class="faint">It goes on if you leave the page; operations are listed under Changes.</p>`;
}

function Done({ step, run, action, close, done }) {
  const [changed, skipped] = [run.sum('changed'), run.sum('skipped')];
  const undoable = run.all.filter((op) => op.undo);
  const undo = () => {
    close();
    undoAll(undoable.map((op) => op.change), { done });
  };
  const kept = undoable.reduce((n, op) => n + op.undo.messages, 0);
  return html`<p aria-live="polite">
    <strong>${plural(changed, 'message')} changed${run.stopped && ', then stopped'}.</strong>
    ${skipped > 0 && ` ${plural(skipped, 'message')} had changed or gone meanwhile and
      ${skipped === 1 ? 'was' : 'were'} left as ${skipped === 1 ? 'it was' : 'they were'}.`}</p>
    <${Failure} error=${step.error} />
    ${action === 'cancel' && changed > kept && html`<p class="late">${kept ? plural(changed - kept, 'message') : 'They'}
      cannot be restored: ${kept ? 'workers held them' : 'they were too many, or too large'}.</p>`}
    <div class="buttons">
      ${kept > 0 && html`<button onClick=${undo}>Undo</button>`}
      <button class="primary" autofocus onClick=${close}>Close</button>
    </div>`;
}
