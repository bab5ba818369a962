// The problems that need a person, above every view: the most urgent ones of the store, each a link to its place, with
// its remedy. They come with the overview.
import { path, post } from '../api.js';
import { local, plural, visible } from '../format.js';
import { html, useState } from '../html.js';
import { useKeys } from '../keys.js';
import { live, now, useLive } from '../live.js';
import { attempt, Confirm, copy, open } from '../ui.js';
import { change, offer } from '../undo.js';
import { Link } from '../url.js';
import { may } from '../who.js';
import { setFlow, showKeys } from './flow.js';

// Problems has the height of one line until a person opens it, so that nothing below moves when problems come and go.
export function Problems() {
  const list = useLive().problems;
  const [all, setAll] = useState(false);
  useKeys({ 'g p': ['go to the problems', () => document.querySelector('.problems a')?.focus()] });
  const shown = list?.items.slice(0, all ? undefined : 1) ?? [];
  const rest = (list?.count ?? 0) - shown.length;
  const toggle = list?.items.length > 1 && html`<button class="quiet" aria-expanded=${String(all)}
    onClick=${() => setAll(!all)}>
    ${all ? 'Show fewer' : `${rest} more`}<span class="hidden"> problems</span></button>`;
  const asOf = list?.stale && html`<span class="faint" title="Later readings have failed or take long">
    as of ${local(Date.parse(list.now), now(), false)}</span>`;
  return html`<section class=${all ? 'problems all' : 'problems'} aria-label="Problems">
    <div class="hidden" role="status">${list && summary(list)}</div>
    ${list?.count === 0 && html`<p class="faint">No problems ${asOf}</p>`}
    <ul>${shown.map((p, i) => html`<${Problem} key=${keyOf(p)} p=${p} beside=${i === 0 && [asOf, toggle]} />`)}
      ${all && rest > 0 && html`<li class="faint">and ${plural(rest, 'other problem')}:
        <code>later problems</code> lists all</li>`}</ul>
  </section>`;
}

// keyOf returns a text that identifies a problem while its text changes.
export const keyOf = (p) => [p.kind, p.queue, p.topic, p.schedule, p.key, p.shard].join('\n');

// summary is read to people who do not see the page, when it changes.
function summary({ count, act }) {
  return `${plural(count, 'problem')}, ${act} to act on`;
}

export function Problem({ p, beside }) {
  const help = may('operate') && helps[p.action.do]?.(p);
  const text = visible(p.text);
  return html`<li class=${p.severity}>
    <${Link} fresh to=${p.place} title=${text}><span class="hidden">
      ${p.severity === 'act' ? 'To act on: ' : 'To watch: '}</span>${text}<//>
    ${help ? html`<button onClick=${help.act}>${help.label}<span class="hidden"> ${help.of}</span></button>` :
      html`<button class="quiet command" title="Copy the command" onClick=${() => copy(p.action.shell, 'the command')}>
        <span class="hidden">Copy the command </span><code>${p.action.shell}</code></button>`}
    ${beside}
  </li>`;
}

const queueOf = (p) => live.overview?.queues.find((q) => q.queue === p.queue);

// helps has the remedies of the page for problems, by the name that the server gives it. A function returns nothing if
// the page cannot do it now.
const helps = {
  resume: (p) => ({
    label: 'Resume…', of: p.queue,
    act: () => open(Confirm, {
      title: `Resume ${p.queue}?`, action: 'Resume', text: 'Its workers receive its messages that are due.',
      submit: async () => {
        const { undo } = await change('POST', path('queues', p.queue, 'resume'));
        offer(`${p.queue} is resumed`, undo, { said: `${p.queue} is paused again` });
      },
    }),
  }),
  resume_workers: ({ paused }) => paused && ({
    label: 'Resume', of: paused.join(', '),
    act: () => attempt(`Resumed ${paused.join(', ')}`, async () => {
      for (const worker of paused) {
        const { workers } = await post(path('workers', worker, 'resume'));
        const refused = workers.find((w) => w.error);
        if (refused) throw new Error(refused.error.detail ?? refused.error.title);
      }
    }),
  }),
  resume_key: (p) => ({
    label: 'Resume…', of: `key ${p.key}`,
    act: () => open(Confirm, {
      title: `Resume key ${p.key}?`, action: 'Resume',
      text: `Its next message starts, and the dead message ${p.message} stays dead. To have that one start
        first, replay it instead.`,
      submit: () => post(path('queues', p.queue, 'keys', p.key, 'resume')),
    }),
  }),
  flow: (p) => queueOf(p) && ({ label: 'Limits…', of: p.queue, act: () => setFlow(queueOf(p)) }),
  keys: (p) => ({ label: 'Keys…', of: p.queue, act: () => showKeys({ queue: p.queue }) }),
};
