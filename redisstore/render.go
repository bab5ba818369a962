package redisstore

import (
	"cmp"
	"crypto/sha1"
	"encoding/hex"
	"maps"
	"strings"
)

// renderer inserts includes and constants into scripts.
type renderer struct {
	constants map[string]string
	clock     string
	flow      bool              // the parts for queues with a flow are included
	sub       bool              // the parts for sub-queues are included
	texts     map[string]string // files with their constants and clock
	keys      string            // the text of lua/_keys.lua for a script with fewer keys
}

func newRenderer(clock string, constants map[string]string, flow, sub bool) renderer {
	if flow {
		constants = maps.Clone(constants)
		constants["FORMAT"], constants["QUEUE_KEYS"] = constants["FLOW_FORMAT"], constants["FLOW_QUEUE_KEYS"]
	}
	return renderer{constants: constants, clock: cmp.Or(clock, serverTime), flow: flow, sub: sub,
		texts: map[string]string{}}
}

// script renders the named script.
func (r renderer) script(name string) *script {
	r.keys = keysOfCommon(name)
	body := r.render(name+".lua", map[string]bool{})
	sum := sha1.Sum([]byte(body))
	sha := hex.EncodeToString(sum[:])
	return &script{name: name, body: body, sha: sha, id: sha, limits: r.flow, short: r.keys != ""}
}

const includeMark = "--@include " // starts the line of an include, before its name

// Lines that begin a part of some renderings: for queues with a flow, for plain queues, or for sub-queues of either
// kind; and the line that ends one.
const (
	flowMark  = "--@flow"
	plainMark = "--@plain"
	subMark   = "--@sub"
	endMark   = "--@end"
)

// render returns the text of a file with its includes, except includes in done, which it extends: a script has each
// include once.
func (r renderer) render(file string, done map[string]bool) string {
	var b strings.Builder
	left := false // in a part of the other rendering
	for line := range strings.Lines(r.text(file)) {
		text := strings.TrimSuffix(line, "\n")
		name, include := strings.CutPrefix(text, includeMark)
		switch {
		case text == flowMark:
			left = !r.flow
		case text == plainMark:
			left = r.flow
		case text == subMark:
			left = !r.sub
		case text == endMark:
			left = false
		case left:
		case !include:
			b.WriteString(line)
		case !done[name]:
			done[name] = true
			b.WriteString(r.render("_"+name+".lua", done))
		}
	}
	return b.String()
}

// text returns the text of a file with its constants. It panics on a missing file: the files are embedded, so any test
// finds that.
func (r renderer) text(file string) string {
	if file == "_keys.lua" && r.keys != "" {
		return r.keys
	}
	if text, ok := r.texts[file]; ok {
		return text
	}
	text, err := luaFiles.ReadFile("lua/" + file)
	if err != nil {
		panic(err)
	}
	r.texts[file] = strings.ReplaceAll(r.replaceConstants(string(text)), serverTime, r.clock)
	return r.texts[file]
}

// replaceConstants replaces each word that names a constant. Every process that opens a store renders all scripts, so
// it is quick.
func (r renderer) replaceConstants(text string) string {
	var b strings.Builder
	for begin := 0; begin < len(text); {
		end := begin + 1
		for end < len(text) && isWord(text[end]) == isWord(text[begin]) {
			end++
		}
		part := text[begin:end]
		b.WriteString(cmp.Or(r.constants[part], part))
		begin = end
	}
	return b.String()
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}
