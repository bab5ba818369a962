// The parts of htm and Preact that the page uses, and values outside of components that these show.
import { html as create, useLayoutEffect, useState } from '../vendor/preact.js';
import { visible } from './format.js';

export { render, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../vendor/preact.js';

const shown = new WeakSet(); // elements with visible texts

// show makes the texts in an element visible, whoever wrote them.
function show(node) {
  if (typeof node === 'string') return visible(node);
  if (Array.isArray(node)) return node.map(show);
  if (node?.props?.children && !shown.has(node)) {
    shown.add(node);
    node.props.children = show(node.props.children);
  }
  return node;
}

// html returns the elements of a template. Their texts are visible: no name, error or payload changes the direction of
// the text around it. Attributes are as they are.
export const html = (...template) => show(create(...template));

// observable returns a hook that renders again, and a function that has all components with the hook do so.
export function observable() {
  const listeners = new Set();
  const use = () => {
    const [, again] = useState(0);
    useLayoutEffect(() => { // before anything else can happen: a change would be missed
      const listener = () => again((n) => n + 1);
      listeners.add(listener);
      return () => listeners.delete(listener);
    }, []);
  };
  const tell = () => {
    for (const listener of [...listeners]) listener();
  };
  return [use, tell];
}
