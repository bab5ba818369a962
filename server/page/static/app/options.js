// The options of a message that are texts: the attributes of their fields in forms, and their code in Go.
export const textOptions = [
  { name: 'group', label: 'Group', input: { maxlength: 128 } },
  { name: 'key', label: 'Key', input: { maxlength: 64, hint: 'Such as a customer' } },
  { name: 'urgency', label: 'Urgency', input: { choices: ['', 'high', 'low'] },
    go: (value) => (value === 'high' ? 'later.Urgent()' : 'later.Background()') },
];

// optionNames are their names in JSON, which are those of their flags, too.
export const optionNames = textOptions.map((o) => o.name);

// goOf returns the options that a message has, as Go code.
export const goOf = (m) => textOptions.filter((o) => m[o.name])
  .map((o) => (o.go ? o.go(m[o.name]) : `later.${o.label}(${JSON.stringify(m[o.name])})`));
