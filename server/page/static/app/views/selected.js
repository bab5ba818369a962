// The actions on the messages that are selected in a list.
import { Bulk } from '../dialogs.js';
import { number } from '../format.js';
import { html } from '../html.js';
import { open } from '../ui.js';

const actions = [
  ['run', 'Run now…', ['scheduled']],
  ['reschedule', 'Reschedule…', ['scheduled', 'ready']],
  ['shift', 'Shift…', ['scheduled', 'ready']],
  ['replay', 'Replay…', ['dead']],
  ['cancel', 'Cancel…', ['scheduled', 'ready', 'dead']],
];

// Selected is a bar with the number of the selected messages and the actions for their states. It covers the head of
// the list, so that no row moves when the first message is selected. Messages in a state that an action is not for are
// left as they are, and the dialog counts the others.
export function Selected({ selection, done }) {
  const states = selection.states();
  const change = (first) => open(Bulk, {
    sources: selection.sources(), filter: {}, selected: selection.count, first,
    state: states.size === 1 ? [...states][0] : states.has('dead') && first === 'replay' ? 'dead' : 'pending',
    done: () => {
      selection.clear();
      done();
    },
  });
  return html`<div class="row selected" role="group" aria-label="Selected messages">
    <strong role="status">${number(selection.count)} selected</strong>
    ${actions.filter(([, , of]) => of.some((state) => states.has(state))).map(([action, label]) => html`<button
      class=${action === 'cancel' ? 'danger' : ''} onClick=${() => change(action)}>${label}</button>`)}
    <button class="quiet" onClick=${selection.clear} title="Esc">Clear</button>
  </div>`;
}
