// The rows of a long list that are in sight, so that only these are drawn.
import { useLayoutEffect, useState } from './html.js';

const around = 5; // rows above and below the ones in sight

// useSight returns the rows in sight of a scrolled box, a ref, that has a number of rows with a height in pixels: the
// first one and the one after the last. It also returns how far the box is scrolled, its width, a function that
// measures these again, for when it is scrolled, and one that scrolls to a row.
export function useSight(box, count, rowHeight) {
  const [{ top, height, width }, setView] = useState({ top: 0, height: 600, width: 0 });
  const measure = () => {
    const { scrollTop, clientHeight, clientWidth } = box.current;
    setView({ top: scrollTop, height: clientHeight, width: clientWidth });
  };
  useLayoutEffect(() => {
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const reveal = (i) => {
    const el = box.current;
    const at = i * rowHeight;
    if (at < el.scrollTop) el.scrollTop = at;
    else if (at + 2 * rowHeight > el.scrollTop + el.clientHeight) el.scrollTop = at + 2 * rowHeight - el.clientHeight;
  };
  return { first: Math.max(0, Math.floor(top / rowHeight) - around),
    to: Math.min(count, Math.ceil((top + height) / rowHeight) + around), top, width, measure, reveal };
}
