package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// table is text in columns. Columns with a heading that begins with > are aligned right.
type table struct {
	headings []string
	rows     [][]string
	err      error // the first one of printing a row
}

func newTable(headings ...string) *table { return &table{headings: headings} }

func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = fmt.Sprint(cell)
	}
	t.rows = append(t.rows, row)
}

// lines returns the headings and the rows, without line ends.
func (t *table) lines() []string {
	right := make([]bool, len(t.headings))
	width := make([]int, len(t.headings))
	heading := make([]string, len(t.headings))
	for i, text := range t.headings {
		heading[i], right[i] = strings.CutPrefix(text, ">")
	}
	rows := append([][]string{heading}, t.rows...)
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, len(rows))
	for i, row := range rows {
		var b strings.Builder
		for column, cell := range row {
			pad := strings.Repeat(" ", width[column]-utf8.RuneCountInString(cell))
			if column > 0 {
				b.WriteString("  ")
			}
			if right[column] {
				b.WriteString(pad + cell)
			} else {
				b.WriteString(cell + pad)
			}
		}
		lines[i] = strings.TrimRight(b.String(), " ")
	}
	return lines
}

func (t *table) String() string { return strings.Join(t.lines(), "\n") + "\n" }

// row prints an object with --json, or else adds a row to a table. An error ends the output, and flush returns it, too.
func (m *Main) row(t *table, object any, cells ...any) error {
	switch {
	case t.err != nil:
	case m.json:
		t.err = m.printJSON(object)
	default:
		t.add(cells...)
	}
	return t.err
}

// flush prints the table, unless it is empty. It returns the first error of its rows.
func (m *Main) flush(t *table) error {
	if t.err != nil || len(t.rows) == 0 {
		return t.err
	}
	return m.print("%s", t)
}

// fields is text with a line for each field.
type fields struct {
	strings.Builder
	width int // of the names
}

// add adds a field, unless its value is empty.
func (f *fields) add(name, value string) {
	if value != "" {
		indent := "\n" + strings.Repeat(" ", f.width+1)
		fmt.Fprintf(f, "%-*s %s\n", f.width, name, strings.ReplaceAll(printable(value), "\n", indent))
	}
}

func (f *fields) addf(name, format string, args ...any) { f.add(name, fmt.Sprintf(format, args...)) }

// at adds a field with a time, unless it is zero.
func (f *fields) at(name string, t time.Time) {
	if !t.IsZero() {
		f.add(name, t.Format("2006-01-02 15:04:05.000 -07:00")+" ("+formatRelative(t, time.Now())+")")
	}
}

// content adds headers and a payload.
func (f *fields) content(headers map[string]string, payload []byte) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		f.add("header", name+"="+headers[name])
	}
	f.addf("payload", "%d bytes", len(payload))
	if len(payload) > 0 {
		fmt.Fprintf(f, "\n%s\n", printable(string(payload)))
	}
}
