package main

import (
	"strings"
	"unicode/utf8"
)

// table is text in columns. Columns with a heading that begins with > are aligned right.
type table struct {
	headings []string
	rows     [][]string
}

func newTable(headings ...string) *table { return &table{headings: headings} }

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

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
