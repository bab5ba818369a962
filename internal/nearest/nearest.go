// Package nearest finds the word that a user may have meant, for error texts.
package nearest

import (
	"strings"
)

// DidYouMean ends an error's text: with the word that is most similar to text, or else with the advice.
func DidYouMean(text string, words []string, advice string) string {
	if word, ok := Word(text, words); ok {
		return ": did you mean " + word + "?"
	}
	return ": " + advice
}

// Word returns the word if text is a longer form of it, as Monday of MON, or its last part, as berlin of Europe/Berlin;
// or else the word that takes the fewest edits, if they are few for the length of text. Case does not matter.
func Word(text string, words []string) (string, bool) {
	if len(text) > 64 {
		return "", false
	}
	best, found := len(text)/2+1, ""
	text = UpperASCII(text)
	for _, word := range words {
		upper := UpperASCII(word)
		if len(word) > 2 && strings.HasPrefix(text, upper) || text != "" && strings.HasSuffix(upper, "/"+text) {
			return word, true
		}
		if d := edits(text, upper); d < best {
			best, found = d, word
		}
	}
	return found, found != ""
}

// edits returns how many bytes must be inserted, removed, replaced or swapped with their neighbour to turn a into b.
func edits(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		row, last, lastButOne := rows[i%3], rows[(i+2)%3], rows[(i+1)%3]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], lastButOne[j-2]+1)
			}
		}
	}
	return rows[len(a)%3][len(b)]
}

// Clip shortens a user's text for an error.
func Clip(text string) string {
	if len(text) > 80 {
		return strings.ToValidUTF8(text[:80], "") + "…"
	}
	return text
}

// UpperASCII returns text with its ASCII letters in upper case. It keeps positions, unlike strings.ToUpper, which
// changes the length of text that is not UTF-8.
func UpperASCII(text string) string {
	upper := []byte(text)
	for i, b := range upper {
		if 'a' <= b && b <= 'z' {
			upper[i] = b - 'a' + 'A'
		}
	}
	return string(upper)
}
