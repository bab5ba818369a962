// Reading messages of several queues and states in order of time, page by page, and keeping only those in sight.
import { get, path, query } from './api.js';
import { saw } from './find.js';
import { useEffect, useRef, useState } from './html.js';

const pageSize = 100;
const preview = 300; // bytes of a payload that a list shows
const lookAtOnce = 2500; // messages that one request looks at, so that it does not take long
const lookBudget = 50_000; // messages that are looked at until somebody wants to look further
const kept = 4; // pages before and after those in sight

// orderOf returns the time by which a message is listed.
export function orderOf(message) {
  return message.died_at || message.due || '';
}

// Reader merges the lists of its sources, which are a queue and a state each, or no state for a group. A page begins at
// a start, which has for each source a cursor and how many messages after it to skip, or nothing if there are no more.
class Reader {
  constructor(sources, filter, progress) {
    this.sources = sources;
    this.progress = progress;
    this.filter = filter;
    this.first = sources.map(() => ({ skip: 0 }));
    this.looked = 0;
  }

  async fill(head, signal, page) {
    while (!head.done && head.at >= head.rows.length) {
      if (head.read) {
        if (!head.next) {
          head.done = true;
          return;
        }
        if (page.looked >= lookBudget) {
          page.stalled = true;
          return;
        }
        Object.assign(head, { cursor: head.next, skip: 0 });
      }
      const { queue, state } = head.source;
      const list = await get(path('queues', queue, 'messages') + query({
        ...this.filter, state, cursor: head.cursor, preview,
        look: lookAtOnce, limit: this.sources.length > 1 ? 50 : pageSize,
      }), { signal });
      saw(list.items);
      Object.assign(head, { read: true, rows: list.items, at: head.skip, next: list.next });
      page.looked += list.looked;
      this.looked += list.looked;
      this.progress();
    }
  }

  async page(start, signal) {
    const heads = this.resume?.start === start ? this.resume.heads : this.sources.map((source, i) => (
      { source, ...start[i], rows: [], at: 0, done: !start[i] }));
    const page = { start, rows: [], looked: 0 };
    while (page.rows.length < pageSize) {
      await Promise.all(heads.map((head) => this.fill(head, signal, page)));
      const open = heads.filter((head) => !head.done);
      if (page.stalled || !open.length) break;
      const earliest = open.reduce((a, b) => (orderOf(b.rows[b.at]) < orderOf(a.rows[a.at]) ? b : a));
      page.rows.push(earliest.rows[earliest.at++]);
    }
    const more = heads.some((head) => !head.done && (head.at < head.rows.length || head.next));
    if (more) {
      page.next = heads.map((head) => {
        if (head.done || (head.at >= head.rows.length && !head.next)) return null;
        return head.at < head.rows.length ? { cursor: head.cursor, skip: head.at } : { cursor: head.next, skip: 0 };
      });
      this.resume = { start: page.next, heads };
    }
    page.count = page.rows.length;
    return page;
  }
}

// useRows returns messages of some sources that match a filter, as they are asked for. Sources that come later are read
// after a reload.
//
// Its count is that of the messages known so far; row returns one of them, or undefined until it has been read again;
// see tells it which are in sight. With search, it stops now and then; more goes on.
export function useRows(sources, filter) {
  const [, again] = useState(0);
  const list = useRef();
  const show = () => again((n) => n + 1);

  const begin = (progress) => (
    { reader: new Reader(sources, filter, progress), abort: new AbortController(), pages: [] });
  list.current ??= begin(show);
  useEffect(() => () => list.current.abort.abort(), []);

  const read = async (into, start, index) => {
    if (into.busy) return;
    into.busy = true;
    into.error = undefined;
    try {
      const page = await into.reader.page(start, into.abort.signal);
      into.pages[index] = page;
    } catch (error) {
      if (into.abort.signal.aborted) return;
      into.error = error;
    }
    into.busy = false;
    show();
  };
  const more = () => {
    const l = list.current;
    const last = l.pages.at(-1);
    if (!last) read(l, l.reader.first, 0);
    else if (last.next) read(l, last.next, l.pages.length);
  };
  useEffect(more, []);

  const { pages, reader, busy, error } = list.current;
  const count = pages.reduce((n, page) => n + page.count, 0);
  const last = pages.at(-1);
  return {
    count,
    error,
    busy: Boolean(busy),
    looked: reader.looked,
    began: pages.length > 0,
    hasMore: Boolean(last?.next),
    stalled: Boolean(last?.stalled && last.next),
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
        if (!page.rows && end > first && from < to) read(l, page.start, i);
        from = end;
      });
      if (to > from - pageSize / 2 && l.pages.at(-1)?.next && !l.pages.at(-1).stalled && !l.error) more();
    },
    // reload reads from the beginning, and shows the messages read before until then.
    reload: async () => {
      const fresh = begin(() => {});
      list.current.abort.abort();
      const before = list.current;
      await read(fresh, fresh.reader.first, 0);
      if (list.current !== before) return;
      if (fresh.error) before.error = fresh.error;
      list.current = fresh.error ? Object.assign(before, { abort: fresh.abort, busy: false }) : fresh;
      fresh.reader.progress = show;
      show();
    },
  };
}
