// One tab stop for each item of a list: the arrow keys move between the items, and among the controls of one.

// rove handles a key in a list. The first control of each item has the tabIndex 0, and the others have -1.
export function rove(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
  const item = event.target.closest('li');
  const list = event.currentTarget;
  if (!item || !list.contains(item)) return;
  const items = [...list.children].filter((li) => li.querySelector(controls));
  const at = items.indexOf(item);
  const inside = [...item.querySelectorAll(controls)];
  const here = inside.indexOf(event.target);
  const to = {
    ArrowDown: () => first(items[at + 1]),
    ArrowUp: () => first(items[at - 1]),
    Home: () => first(items[0]),
    End: () => first(items.at(-1)),
    ArrowRight: () => inside[here + 1],
    ArrowLeft: () => inside[here - 1],
  }[event.key]?.();
  if (!to) return;
  event.preventDefault();
  to.focus();
}

const controls = 'a, button:not(:disabled)';

function first(item) {
  return item?.querySelector(controls);
}
