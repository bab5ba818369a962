// Texts of a search. The server reads them; docs/page.md describes the language.

// words are the parts of a text that are separated by spaces outside of quotes.
function words(text) {
  return text.match(/(?:[^\s"]|"(?:[^"\\]|\\.)*"?)+/gs) ?? [];
}

// hasGroup reports whether a text selects the messages of a group, which are listed whatever their states.
export function hasGroup(text = '') {
  return words(text).some((word) => /^group:./.test(word));
}

// quoted returns a text as one word of a search.
export function quoted(text) {
  return /[\s"\\]/.test(text) ? `"${text.replace(/["\\]/g, '\\$&')}"` : text;
}

// word returns a condition as text for the search.
export function word(name, value) {
  return `${name}:${quoted(value)}`;
}
