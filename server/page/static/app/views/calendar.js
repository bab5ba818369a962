// The runs of a schedule in a month, past and future.
import { get, path, query } from '../api.js';
import { iso, local, plural } from '../format.js';
import { html, useState } from '../html.js';
import { now } from '../live.js';
import { Failure, useLoad } from '../ui.js';

const month = new Intl.DateTimeFormat([], { month: 'long', year: 'numeric' });
const weekday = new Intl.DateTimeFormat([], { weekday: 'short' });

const most = 500; // runs that are read at once

const runsOf = (name, from, to) =>
  path('schedules', name, 'runs') + query({ from: iso(from), to: iso(to), limit: most });

// Calendar shows a month. The list below it has the runs of the day that is chosen.
export function Calendar({ name, created, generation }) {
  const today = new Date(now());
  const [first, setFirst] = useState(new Date(today.getFullYear(), today.getMonth(), 1));
  const [chosen, setChosen] = useState(today.getDate());
  const begin = (day) => +new Date(first.getFullYear(), first.getMonth(), day);
  const next = +new Date(first.getFullYear(), first.getMonth() + 1, 1);
  const loaded = useLoad((signal) => get(runsOf(name, +first, next), { signal }),
    [name, +first, generation]);
  const turn = (by) => { setFirst(new Date(first.getFullYear(), first.getMonth() + by, 1)); setChosen(undefined); };
  const runs = loaded.data?.items ?? [];
  const some = runs.length >= most; // there are more, which are read for the day that is chosen
  const day = useLoad(async (signal) => (
    chosen && some && (await get(runsOf(name, begin(chosen), begin(chosen + 1)), { signal })).items),
    [some, chosen, +first]);
  const days = byDay(runs);
  const list = day.data || (days.get(chosen) ?? []);
  const blank = (first.getDay() + 6) % 7; // weeks begin on Monday
  const count = new Date(first.getFullYear(), first.getMonth() + 1, 0).getDate();
  const isToday = (day) => today.getDate() === day && today.getMonth() === first.getMonth() &&
    today.getFullYear() === first.getFullYear();
  return html`<section class="calendar" aria-labelledby="calendar-title">
    <header class="row"><h3 id="calendar-title" aria-live="polite">${month.format(first)}</h3><span class="grow"></span>
      <button aria-label="Month before" disabled=${+first < Date.parse(created)} onClick=${() => turn(-1)}>‹</button>
      <button aria-label="Month after" onClick=${() => turn(1)}>›</button></header>
    <${Failure} error=${loaded.error} retry=${loaded.reload} />
    <div class="days">
      ${[...Array(7).keys()].map((i) =>
        html`<span class="faint" aria-hidden="true">${weekday.format(new Date(2024, 0, 1 + i))}</span>`)}
      ${[...Array(blank).keys()].map(() => html`<span></span>`)}
      ${[...Array(count).keys()].map((i) => {
        const all = days.get(i + 1) ?? [];
        return html`<button class=${isToday(i + 1) ? 'day today' : 'day'} aria-pressed=${chosen === i + 1}
          onClick=${() => setChosen(i + 1)}>
          ${i + 1}<span class="hidden">: ${plural(all.length, 'run')}</span><span class="dots" aria-hidden="true">
            ${all.slice(0, 4).map((r) => html`<i class=${r.state}></i>`)}
            ${all.length > 4 && `+${all.length - 4}`}</span>
        </button>`;
      })}
    </div>
    ${some && html`<p class="faint">The days show the first ${most} runs of the month.</p>`}
    ${chosen && html`<ol class="plain runs" tabIndex="0" aria-label="Runs of the day">
      ${list.slice(0, 100).map((r) => html`<li>
      ${local(Date.parse(r.due), now())} <span class="faint">
        ${r.local?.slice(11, 19)} ${r.time_zone} ·</span> ${r.state}</li>`)}
      ${!list.length && html`<li class="faint">No runs on this day.</li>`}</ol>`}
  </section>`;
}

function dayOf(run) {
  return new Date(run.due).getDate();
}

function byDay(runs) {
  const days = new Map();
  for (const run of runs) days.set(dayOf(run), [...(days.get(dayOf(run)) ?? []), run]);
  return days;
}
