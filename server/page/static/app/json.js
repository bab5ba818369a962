// JSON with all digits of its numbers.

// parse returns the value of JSON. A number that would lose digits, or become infinite, is an object that is written as
// it was read, in browsers that can do that.
export function parse(text) {
  if (!JSON.rawJSON || !/[\d.]{16}|\d[eE]/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_, value, { source }) => (
    typeof value === 'number' && String(value) !== source && /[\d.]{16}|[eE]/.test(source) ?
      JSON.rawJSON(source) : value));
}

// digits returns the text of a number from parse that is an object.
export function digits(value) {
  return JSON.isRawJSON?.(value) ? value.rawJSON : undefined;
}

// payloadText returns the payload of a message or schedule as text, or undefined if it is bytes.
export function payloadText(m) {
  return m.payload === undefined ? m.payload_text : JSON.stringify(m.payload);
}
