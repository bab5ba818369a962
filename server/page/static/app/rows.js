// Reading messages of some queues and states in order of time, page by page, and keeping only the rows in sight.
import { get, path, query } from './api.js';
import { saw } from './find.js';
import { useEffect, useRef, useState } from './html.js';

const firstPage = 45; // rows: the ones on a large screen, and some more
const pageSize = 100;
const mostRows = 500; // of one request
const ahead = 15; // rows below the ones in sight that are read before they are needed
const preview = 160; // bytes of a payload that a list shows
const lookAtOnce = 2500; // messages that one request looks at, so that it does not take long
const lookBudget = 50_000; // messages that are looked at until a person wants to look further
const kept = 4; // pages before and after the ones in sight

// orderOf returns the time by which a message is listed.
export function orderOf(message) {
  return message.died_at || message.due || '';
}

// readPage reads a page of at most limit messages that begins at a cursor. It calls looked with the number of messages
// of each reply that were looked at, and size with the bytes of the reply.
async function readPage(filter, start, limit, { signal, looked, size }) {
  const page = { start, rows: [], next: start };
  let seen = 0;
  do {
    const list = await get(path('messages') + query({
      ...filter, cursor: page.next, preview, look: lookAtOnce, limit: limit - page.rows.length,
    }), { signal, size });
    saw(list.items);
    page.rows.push(...list.items);
    page.next = list.next;
    seen += list.looked;
    looked(list.looked);
  } while (page.next && page.rows.length < limit && seen < lookBudget);
  page.stalled = Boolean(page.next) && page.rows.length < limit;
  page.count = page.rows.length;
  return page;
}

// useRows returns messages that match a filter, the parameters of a request, as they are asked for.
//
// Its count is that of the messages known so far; row returns one of them, or undefined until it has been read again;
// see tells it which are in sight; refreshing reports whether a refresh is under way. A search stops now and then; more
// goes on. bytes is the size of the last reload.
export function useRows(filter) {
  const [, again] = useState(0);
  const list = useRef();
  const fresh = useRef(); // the list that a refresh reads
  const show = () => again((n) => n + 1);

  const begin = () => ({ abort: new AbortController(), pages: [], looked: 0, bytes: 0 });
  list.current ??= begin();
  useEffect(() => () => [list, fresh].forEach(({ current }) => current?.abort.abort()), []);

  const read = async (into, start, index, limit) => {
    if (into.busy) return;
    into.busy = true;
    into.error = undefined;
    try {
      into.pages[index] = await readPage(filter, start, limit, {
        signal: into.abort.signal,
        looked: (n) => { into.looked += n; if (into === list.current) show(); },
        size: (n) => { into.bytes += n; },
      });
    } catch (error) {
      if (into.abort.signal.aborted) return;
      into.error = error;
    }
    if (!into.error) into.at = Date.now();
    into.busy = false;
    show();
  };
  const more = () => {
    const l = list.current;
    const last = l.pages.at(-1);
    if (!last) read(l, undefined, 0, firstPage);
    else if (last.next) read(l, last.next, l.pages.length, pageSize);
  };
  useEffect(more, []);

  const { pages, looked, bytes, busy, error: failed, at } = list.current;
  const count = pages.reduce((n, page) => n + page.count, 0);
  const last = pages.at(-1);
  return {
    count,
    error: failed,
    looked,
    bytes,
    at,
    busy: Boolean(busy),
    began: pages.length > 0,
    hasMore: Boolean(last?.next),
    stalled: Boolean(last?.stalled),
    more,
    row: (i) => {
      for (const page of pages) {
        if (i < page.count) return page.rows?.[i];
        i -= page.count;
      }
      return undefined;
    },
    see: (first, to) => {
      let from = 0;
      const l = list.current;
      l.pages.forEach((page, i) => {
        const end = from + page.count;
        const near = end > first - kept * pageSize && from < to + kept * pageSize;
        if (!near) page.rows = undefined;
        if (!page.rows && end > first && from < to) read(l, page.start, i, page.count);
        from = end;
      });
      if (to > from - ahead && l.pages.at(-1)?.next && !l.pages.at(-1).stalled && !l.error) more();
    },
    refreshing: () => Boolean(fresh.current?.busy),
    // refresh reads the rows down to one from the beginning, and shows the messages read before until then.
    refresh: async (to) => {
      const next = begin();
      const before = list.current;
      [before, fresh.current].forEach((l) => l?.abort.abort()); // their pages are older
      fresh.current = next;
      await read(next, undefined, 0, Math.min(mostRows, Math.max(firstPage, to + ahead + 1)));
      if (fresh.current !== next || next.abort.signal.aborted) return;
      const { error, abort } = next;
      list.current = error ? Object.assign(before, { error, abort, busy: false }) : next;
      show();
    },
  };
}
