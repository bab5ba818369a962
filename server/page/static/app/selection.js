// The messages of a list that are selected. They are kept by queue and id, so that they stay selected while
// the list is read again and its rows move.
import { useRef, useState } from './html.js';
import { notify } from './ui.js';

const perRequest = 1000; // ids that one bulk change takes
const furthest = 2000; // rows of a range at most

// keyOf returns a text that no other message has.
export const keyOf = (m) => `${m.queue}\n${m.id}`;

// rowOf returns the row of the message with a key, nearest to a place and some rows from it at most, or -1.
export function rowOf(rows, key, place, most) {
  const is = (i) => i >= 0 && i < rows.count && rows.row(i) && keyOf(rows.row(i)) === key;
  for (let by = 0; key && by <= most; by++) {
    if (is(place + by)) return place + by;
    if (is(place - by)) return place - by;
  }
  return -1;
}

// sourcesOf returns the queues and states of messages, with up to as many ids each as one bulk change takes.
function sourcesOf(messages) {
  const all = new Map();
  for (const { queue, id, state } of messages) {
    const key = `${queue}\n${state}`;
    const last = all.get(key)?.at(-1);
    if (last && last.ids.length < perRequest) last.ids.push(id);
    else all.set(key, [...all.get(key) ?? [], { queue, state, ids: [id] }]);
  }
  return [...all.values()].flat();
}

// useSelection returns the selection of a list. It asks the rows for the messages of a range.
export function useSelection(rows) {
  const [selected, set] = useState(new Map()); // by key: the queue, the id and the state
  const anchor = useRef(); // the message where a range begins

  const put = (some, on) => {
    const next = new Map(selected);
    for (const m of some) {
      if (on) next.set(keyOf(m), { queue: m.queue, id: m.id, state: m.state });
      else next.delete(keyOf(m));
    }
    set(next);
  };

  // range selects all messages from the anchor to a row. All of its rows must be in memory, as those in sight and some
  // hundred around them are.
  const range = (i) => {
    const from = rowOf(rows, anchor.current, i, furthest);
    const some = [];
    for (let at = Math.min(from, i); at <= Math.max(from, i); at++) some.push(rows.row(at));
    if (from < 0 || some.some((m) => !m)) {
      notify('The range is too long for a selection: search for its messages, and change all that match.',
        { bad: true });
      return;
    }
    put(some.filter(selectable), true);
    anchor.current = keyOf(rows.row(i)); // the next range goes on from here
  };

  return {
    count: selected.size,
    has: (m) => selected.has(keyOf(m)),
    // toggle selects the message of a row, or not any more; with shift it selects a range that ends there.
    toggle: (m, i, shift) => {
      if (!selectable(m)) return;
      if (shift && anchor.current !== undefined) {
        range(i);
        return;
      }
      anchor.current = keyOf(m);
      put([m], !selected.has(keyOf(m)));
    },
    clear: () => {
      anchor.current = undefined;
      set(new Map());
    },
    sources: () => sourcesOf([...selected.values()]),
    states: () => new Set([...selected.values()].map((m) => m.state)),
  };
}

// selectable reports whether a message can be changed together with others.
export const selectable = (m) => m.state !== 'leased';
