// What one can type into the search: words are looked for in payloads, and these select by something else:
//
//   id:order-17  error:timeout  header:kind=mail  group:g  attempts>=3  order.total>=100
//
// A text in quotes is one word.

const conditions = {
  id: 'id', error: 'error', group: 'group', payload: 'payload', pattern: 'error_pattern',
};

// examples are for the help.
export const examples = [
  ['refund', 'in the payload'],
  ['"out of stock"', 'in the payload, with a space'],
  ['id:order-17', 'in the id'],
  ['error:timeout', 'in the last error'],
  ['header:kind=mail', 'a header with this value'],
  ['attempts>=3', 'failed attempts'],
  ['order.total>=100', 'a value in a JSON payload: =, !=, <, <=, >, >= and ~ for contains'],
  ['group:customer-9', 'messages of a group'],
];

function words(text) {
  return text.match(/(?:[^\s"]|"(?:[^"\\]|\\.)*"?)+/gs) ?? [];
}

// unquoted removes quotes, and the backslashes before characters in quotes.
function unquoted(text) {
  return text.replace(/"((?:[^"\\]|\\.)*)"?/gs, (_, inner) => inner.replace(/\\(.)/gs, '$1'));
}

// parse returns the filter of a search, as fields of the API.
export function parse(text = '') {
  const filter = {};
  const payload = [];
  for (const word of words(text)) {
    const [, name, value] = /^(\w+):(.+)$/s.exec(word) ?? [];
    const compare = /^([^\s"=<>!~]+)(!=|<=|>=|=|<|>|~)(.+)$/s.exec(word);
    if (name === 'header' && value.includes('=')) {
      const at = value.indexOf('=');
      filter.headers = { ...filter.headers, [value.slice(0, at)]: unquoted(value.slice(at + 1)) };
    } else if (conditions[name]) {
      filter[conditions[name]] = unquoted(value);
    } else if (compare && compare[1] === 'attempts' && Number.isInteger(Number(compare[3]))) {
      attempts(filter, compare[2], Number(compare[3]));
    } else if (compare) {
      filter.json = `${compare[1]} ${compare[2]} ${unquoted(compare[3])}`;
    } else {
      payload.push(unquoted(word));
    }
  }
  if (payload.length) filter.payload = payload.join(' ');
  return filter;
}

function attempts(filter, op, n) {
  if (n < 1 || (op === '<' && n < 2) || op === '!=' || op === '~') {
    throw new Error('attempts counts failed attempts: give a comparison such as attempts>=1 or attempts<=3');
  }
  if (op === '=' || op.startsWith('>')) filter.min_attempts = op === '>' ? n + 1 : n;
  if (op === '=' || op.startsWith('<')) filter.max_attempts = op === '<' ? n - 1 : n;
}

// queryOf returns a filter as parameters of a list.
export function queryOf({ headers, ...filter }) {
  return { ...filter, header: headers && Object.entries(headers).map(([name, value]) => `${name}=${value}`) };
}

// word returns a condition as text for the search.
export function word(name, value) {
  return `${name}:${/[\s"\\]/.test(value) ? `"${value.replace(/["\\]/g, '\\$&')}"` : value}`;
}
