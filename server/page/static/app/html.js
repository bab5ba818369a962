// The parts of htm and Preact that the page uses, and values outside of components that these show.
import { useLayoutEffect, useState } from '../vendor/preact.js';

export { html, render, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../vendor/preact.js';

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
