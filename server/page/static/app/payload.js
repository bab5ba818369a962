// A payload as a tree, as text, or as bytes.
import { bytesOf, hexDump, plural } from './format.js';
import { html, useMemo, useState } from './html.js';
import { digits, parse, payloadText } from './json.js';
import { copy } from './ui.js';

const shownItems = 100; // of an object or array, until more are asked for
const openLevels = 8;
const shownText = 64 << 10; // characters

// parsed returns the value of text that looks like an object or array.
function parsed(text) {
  if (!/^\s*[[{]/.test(text ?? '')) return undefined;
  try {
    return parse(text);
  } catch {
    return undefined;
  }
}

// Payload shows the payload of a message in full.
export function Payload({ m }) {
  const text = useMemo(() => payloadText(m), [m]);
  const json = useMemo(() => m.payload ?? parsed(text), [m]);
  const bytes = useMemo(() => (text === undefined ? bytesOf(m.payload_base64 ?? m.raw_base64 ?? '') :
    new TextEncoder().encode(text)), [m]);
  const ways = [json !== undefined && 'tree', text !== undefined && 'text', 'hex'].filter(Boolean);
  const [chosen, setWay] = useState();
  const way = chosen && ways.includes(chosen) ? chosen : ways[0];
  return html`<section class="payload-view" aria-labelledby="payload-title">
    <header class="row">
      <h3 id="payload-title">Payload</h3> <span class="faint">${plural(bytes.length, 'byte')}
        ${m.raw_base64 && ', which cannot be read as a message'}</span>
      <span class="grow"></span>
      <span class="segmented" role="group" aria-label="Show the payload as">
        ${ways.map((name) => html`<button aria-pressed=${name === way} onClick=${() => setWay(name)}>${name}</button>`)}
      </span>
      ${text !== undefined && html`<button onClick=${() => copy(text, 'the payload')}>Copy</button>`}
    </header>
    ${way === 'tree' && html`<div class="tree"><${Node} value=${json} open=${openLevels} /></div>`}
    ${way === 'text' && html`<${Text} text=${text} />`}
    ${way === 'hex' && html`<pre tabIndex="0">${hexDump(bytes)}</pre>`}
  </section>`;
}

function Text({ text }) {
  const [all, setAll] = useState(false);
  const shown = all ? text : text.slice(0, shownText);
  return html`<pre tabIndex="0" dir="auto">${shown}</pre>
    ${shown.length < text.length &&
      html`<button onClick=${() => setAll(true)}>Show all ${plural(text.length, 'character')}</button>`}`;
}

// Node is a value of a tree with so many open levels.
function Node({ name, value, open }) {
  const [opened, setOpened] = useState(open > 0);
  const [shown, setShown] = useState(shownItems);
  const label = name !== undefined && html`<span class="key">${String(name)}</span>: `;
  const number = digits(value);
  if (value === null || typeof value !== 'object' || number) {
    const kind = value === null ? 'null' : number ? 'number' : typeof value;
    return html`<div>${label}<span class=${`value ${kind}`} dir="auto">${
      number ?? (typeof value === 'string' ? JSON.stringify(value) : String(value))}</span></div>`;
  }
  const list = Array.isArray(value);
  const entries = Object.entries(value);
  const size = list ? `[${plural(entries.length, 'item')}]` : `{${plural(entries.length, 'field')}}`;
  if (!entries.length) return html`<div>${label}<span class="faint">${list ? '[]' : '{}'}</span></div>`;
  return html`<details open=${opened}
    onToggle=${(event) => event.target === event.currentTarget && setOpened(event.currentTarget.open)}>
    <summary>${label}<span class="faint">${size}</span></summary>
    ${opened && html`<div class="children">
      ${entries.slice(0, shown).map(([key, item]) =>
        html`<${Node} key=${key} name=${key} value=${item} open=${entries.length < 20 ? open - 1 : 0} />`)}
      ${shown < entries.length &&
        html`<button onClick=${() => setShown(shown * 10)}>${plural(entries.length - shown, 'more item')}…</button>`}
    </div>`}
  </details>`;
}
