// Changes that can be undone.
import { get, path, post, query, request } from './api.js';
import { plural } from './format.js';
import { parse } from './json.js';
import { notify } from './ui.js';

// change makes a change. It returns the reply, and the id of the change if that can be undone.
export async function change(method, to, body = method === 'POST' ? {} : undefined) {
  const response = await request(method, to, body);
  const text = await response.text();
  const undo = response.headers.has('Later-Undoable') ? response.headers.get('Later-Change') : undefined;
  return { value: text ? parse(text) : undefined, undo };
}

// undone undoes a change and returns how many messages that changed and skipped.
async function undone(id) {
  const result = await post(path('changes', id, 'undo'));
  let { operation } = result;
  while (operation?.state === 'running') {
    operation = await get(path('operations', operation.id) + query({ wait: '500ms' }));
  }
  if (operation?.error) throw new Error(operation.error.detail);
  return operation ?? result;
}

// undoAll undoes changes, says how that went, and then calls done. It goes on after one that cannot be undone. said
// is the text for one that succeeds.
export async function undoAll(ids, { said, done = () => {} } = {}) {
  let [changed, skipped] = [0, 0];
  const errors = new Set();
  for (const id of ids) {
    try {
      const result = await undone(id);
      changed += result.changed;
      skipped += result.skipped;
    } catch (error) {
      errors.add(error.message);
    }
  }
  if (changed || !errors.size) {
    const rest = skipped ? `; ${plural(skipped, 'other')} had changed since and stayed` : '';
    notify((said ?? `${plural(changed, 'message')} ${changed === 1 ? 'is' : 'are'} as before`) + rest);
  }
  for (const error of errors) notify(error, { bad: true });
  done();
}

// offer shows the text about a change, and offers to undo it if that is possible.
export function offer(text, id, options) {
  notify(text, { undo: id && (() => undoAll([id], options)) });
}
