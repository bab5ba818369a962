// The widths of the columns of the list of messages: as wide as their longest text, if there is room.
import { html, useEffect, useState } from './html.js';

const phone = matchMedia('(max-width: 600px)');

// usePhone reports whether the screen is as narrow as that of a phone, where a row has two lines.
export function usePhone() {
  const [is, set] = useState(phone.matches);
  useEffect(() => {
    const change = () => set(phone.matches);
    phone.addEventListener('change', change);
    return () => phone.removeEventListener('change', change);
  }, []);
  return is;
}

const padding = 20; // pixels of a cell beside its text
const tries = 64;
export const pick = 36; // as in style.css
const fonts = {}; // of the columns
let canvas;

// measure returns the width of a text of a column in pixels.
function measure(name, text) {
  if (!canvas) {
    canvas = document.createElement('canvas').getContext('2d');
    const page = getComputedStyle(document.documentElement);
    const mono = `12px ${page.getPropertyValue('--mono')}`;
    const text = `${page.fontSize} ${page.fontFamily}`;
    Object.assign(fonts, { when: text, queue: text, id: mono, text: mono });
  }
  canvas.font = fonts[name];
  return canvas.measureText(text).width + padding;
}

// widen makes needed, the widths of the longest texts seen by column, fit another row.
export function widen(needed, row) {
  for (const [name, text] of Object.entries(row)) needed[name] = Math.max(needed[name] ?? 0, measure(name, text));
}

// widthsOf returns the widths of the columns in pixels. Ids and payloads share the room that the others leave: a column
// that needs less than its share leaves it to the other. Beside a message the list has no queues and payloads, and ids
// get all room.
export function widthsOf({ when = 0, queue = 0, id = 0, text = 0 }, width, many, split) {
  const widths = { tries, when: Math.max(110, when), queue: many ? Math.min(220, Math.max(64, queue)) : 0 };
  if (split) return { tries, when: widths.when };
  const free = width - widths.when - widths.queue - tries;
  widths.id = Math.max(80, Math.min(id, Math.max(free * 0.45, free - text)));
  return widths;
}

// Head has the names of the columns.
export function Head({ state, many, widths, picks }) {
  const time = { leased: 'Held until', dead: 'Died' }[state] ?? 'Due';
  const wide = (name) => widths?.[name] && { width: `${Math.round(widths[name])}px` };
  return html`<thead><tr>
    ${picks && html`<th scope="col" class="pick"><span class="hidden">Selected</span></th>`}
    <th scope="col" class="when" style=${wide('when')}>${time}</th>
    ${many && html`<th scope="col" class="queue" style=${wide('queue')}>Queue</th>`}
    <th scope="col" class="id" style=${wide('id')}>Id</th>
    <th scope="col" class="tries number" style=${wide('tries')}>Failed</th>
    <th scope="col" class="payload">${state === 'dead' ? 'Error' : 'Payload'}</th>
    <th scope="col" class="act"><span class="hidden">Actions</span></th>
  </tr></thead>`;
}
