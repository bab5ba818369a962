// Finding anything: the results of the server as they come, and examples from the messages that were seen.
import { path, Problem, query, request } from './api.js';
import { useEffect, useRef, useState } from './html.js';
import { parse } from './json.js';
import { quoted, word } from './search.js';
import { hidesPayloads } from './who.js';

const preview = 160; // bytes of a payload that a result shows
const step = 100; // messages that a request shows; the list has more
const pause = 150; // milliseconds without a key until a text is looked for

// lines calls each with the JSON lines of a reply as they come.
async function lines(response, each) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const all = (rest + value).split('\n');
    rest = all.pop();
    all.forEach((line) => each(parse(line)));
  }
}

const none = () => ({ scheduled: 0, ready: 0, leased: 0, dead: 0 });

function sum(before, more) {
  return Object.fromEntries(Object.keys(before).map((state) => [state, before[state] + more[state]]));
}

// Search is the results of one text: messages with the id, names, messages that match, and how far it is.
class Search {
  constructor(text, show) {
    Object.assign(this, { text, show, ids: [], finished: [], names: [], messages: [], most: 0, looked: none(),
      matched: none(), namesLeftOut: 0, stage: '', running: false, done: false, next: undefined, error: undefined,
      before: undefined, abort: new AbortController() });
  }

  // run looks for the text, or goes on. After an error, it repeats the request that failed.
  async run() {
    if (this.error) Object.assign(this, this.before);
    const { ids, finished, names, messages, most, looked, matched, namesLeftOut, next } = this;
    const before = { ids, finished, names, messages, most, looked, matched, namesLeftOut, next };
    Object.assign(this, { before, ids: [...ids], finished: [...finished], names: [...names],
      messages: [...messages], most: most + step, running: true, error: undefined });
    const { signal } = this.abort;
    let last = {};
    try {
      const response = await request('GET', path('find') + query({ q: this.text, cursor: this.next, preview }),
        undefined, { signal });
      await lines(response, (line) => {
        last = line;
        this.add(line, before);
      });
      if (last.problem) throw new Problem(last.problem);
      if (!last.progress?.done && !last.progress?.next) {
        throw new Problem({ code: 'unavailable', detail: 'The search was cut off: try again.' });
      }
    } catch (error) {
      if (signal.aborted) return;
      this.error = error;
    }
    this.running = false;
    this.show();
  }

  add({ stage, message, finished, name, progress }, before) {
    if (finished) this.finished.push(finished);
    if (message) (stage === 'id' ? this.ids : this.messages).push(message);
    if (name) this.names.push(name);
    if (!progress) return;
    this.stage = stage;
    this.progress = progress;
    if (stage === 'name') this.namesLeftOut = progress.names_left_out ?? 0;
    if (stage === 'content') {
      this.looked = sum(before.looked, progress.looked);
      this.matched = sum(before.matched, progress.matched);
    }
    Object.assign(this, { done: progress.done, next: progress.next });
    this.show();
  }
}

// useFind returns the Search of a text, or undefined without one. It renders as results come.
export function useFind(text) {
  const [, again] = useState(0);
  const current = useRef();
  useEffect(() => {
    const wanted = text.trim();
    current.current?.abort.abort();
    if (!wanted) {
      current.current = undefined;
      again((n) => n + 1);
      return undefined;
    }
    const search = new Search(wanted, () => current.current === search && again((n) => n + 1));
    const timer = setTimeout(() => {
      current.current = search; // until then, the results before it are shown
      search.run();
    }, pause);
    return () => { clearTimeout(timer); search.abort.abort(); };
  }, [text]);
  return current.current;
}

let seen = []; // messages of the lists that were loaded last

// saw tells of messages that a list shows. Examples are made from them.
export function saw(messages) {
  seen = [...messages.slice(0, 20), ...seen].slice(0, 100);
}

// payloadOf returns the payload of a message that is JSON, also if its sender did not say so.
function payloadOf(m) {
  try {
    return m.payload ?? JSON.parse(m.payload_text);
  } catch {
    return undefined;
  }
}

// fields returns the paths and values of single values in JSON.
function fields(value, prefix = '', depth = 0) {
  if (!value || typeof value !== 'object' || Array.isArray(value) || depth > 2) return [];
  return Object.entries(value).filter(([name]) => /^[\p{L}_][\p{L}\d_]*$/u.test(name)).flatMap(([name, inner]) => (
    typeof inner === 'object' ? fields(inner, `${prefix}${name}.`, depth + 1) : [[prefix + name, inner]]));
}

// examples returns texts of searches with their meanings. Where it can, it takes them from messages that were seen, and
// never from hidden parts.
export function examples() {
  const hidden = hidesPayloads();
  const of = (pick) => seen.map(pick).find((value) => value !== undefined && value !== '');
  const short = (text) => (text && [...text].length <= 30 ? text : undefined);
  const all = hidden ? [] : seen.flatMap((m) => fields(payloadOf(m)));
  const number = all.find(([, value]) => typeof value === 'number');
  const text = all.find(([, value]) => typeof value === 'string' && short(value));
  const header = hidden ? undefined : of((m) => Object.entries(m.headers ?? {}).find(([name, value]) => (
    name !== 'content-type' && short(value))));
  const id = of((m) => short(m.id)) ?? 'order-17';
  return [
    [quoted(id), 'a message by its id, in any queue and state'],
    [hidden ? 'order 42' : 'refund 42', `words in ids, groups, keys${hidden ? '' : ' and payloads'}; names of queues`],
    ['"out of stock"', 'a text with spaces'],
    [word('id', id.slice(0, 8)), 'a part of the id'],
    [word('group', of((m) => short(m.group)) ?? 'customer-9'), 'messages of a group'],
    ['attempts>=1', 'failed attempts'],
    ...hidden ? [] : [
      [`header:${header ? `${header[0]}=${quoted(header[1])}` : 'kind=mail'}`, 'a header with this value'],
      ['error:timeout', 'in the error of a failed attempt'],
      [number ? `${number[0]}>=${number[1]}` : 'order.total>=100', 'a value in a JSON payload: =, !=, <, <=, >, >='],
      [text ? `${text[0]}~${quoted(text[1])}` : 'name~Ann', '~ for a text that contains another'],
    ],
  ];
}
