package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/tidwall/gjson"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/jsonfields"
	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/schedule"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/store"
)

// maxScheduleFile is the maximum size of a file of schedules, in bytes.
const maxScheduleFile = 64 << 20

// scheduleFile is a file of schedules.
type scheduleFile struct {
	Set       string
	Schedules []later.Schedule
}

// readScheduleFile reads a YAML or JSON file, or standard input if its name is "-".
func (m *Main) readScheduleFile(name string) (file scheduleFile, err error) {
	var from io.Reader = m.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return file, store.Invalid("file of schedules: %v", err)
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, maxScheduleFile+1))
	switch {
	case err != nil:
		return file, fmt.Errorf("%s: %w", name, err)
	case len(text) > maxScheduleFile:
		return file, store.TooLarge("%s has more than %d bytes", name, maxScheduleFile)
	}
	if file, err = parseScheduleFile(text); err != nil {
		return file, fmt.Errorf("%s: %w", name, err)
	}
	return file, nil
}

// parseScheduleFile parses YAML, which includes JSON.
func parseScheduleFile(text []byte) (file scheduleFile, err error) {
	object, err := yamlToJSON(bytes.TrimPrefix(text, []byte("\ufeff"))) // some editors begin files with that
	if err != nil {
		return file, err
	}
	var read struct {
		Set       string            `json:"set,omitempty"`
		Schedules []json.RawMessage `json:"schedules,omitempty"`
	}
	if err := jsonfields.Decode(object, &read); err != nil {
		return file, err
	}
	if len(read.Schedules) == 0 {
		return file, store.Invalid(`no schedules: give a list named "schedules"`)
	}
	file.Set, file.Schedules = read.Set, make([]later.Schedule, len(read.Schedules))
	for i, one := range read.Schedules {
		if err := file.Schedules[i].UnmarshalJSON(one); err != nil {
			return file, fmt.Errorf("entry %d: %w", i+1, err)
		}
	}
	return file, nil
}

// yamlToJSON returns the JSON of a YAML document.
func yamlToJSON(text []byte) (object []byte, err error) {
	if json.Valid(text) {
		return text, nil
	}
	defer func() {
		if p := recover(); p != nil { // fuzzing finds such texts in the parser
			err = store.Invalid("not YAML: the parser failed: %v", p)
		}
	}()
	parsed, err := parser.ParseBytes(text, 0)
	if err == nil {
		if len(parsed.Docs) > 1 {
			return nil, store.Invalid("it has %d YAML documents: put all schedules into one", len(parsed.Docs))
		}
		err = checkAliases(parsed)
	}
	if err == nil {
		object, err = yaml.YAMLToJSON(text)
	}
	if err == nil {
		err = jsontext.CheckDepth(object)
	}
	if err == nil {
		object = withLastValues(nil, gjson.ParseBytes(object))
	}
	if err != nil && store.CodeOf(err) == store.Internal {
		err = store.Invalid("not YAML: %s", strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	return object, err
}

// withLastValues appends JSON in which each name of an object has its last value: a merge, as in {<<: *a, name: b},
// gives a name twice.
func withLastValues(to []byte, value gjson.Result) []byte {
	if !value.IsObject() && !value.IsArray() {
		return append(to, value.Raw...)
	}
	var names []string
	values := map[string]gjson.Result{}
	value.ForEach(func(name, inner gjson.Result) bool {
		key := name.Raw // none in a list
		if value.IsArray() {
			key = strconv.Itoa(len(names))
		}
		if _, twice := values[key]; !twice {
			names = append(names, key)
		}
		values[key] = inner
		return true
	})
	brackets := "[]"
	if value.IsObject() {
		brackets = "{}"
	}
	to = append(to, brackets[0])
	for i, name := range names {
		if i > 0 {
			to = append(to, ',')
		}
		if value.IsObject() {
			to = append(append(to, name...), ':')
		}
		to = withLastValues(to, values[name])
	}
	return append(to, brackets[1])
}

// checkAliases returns an error if the aliases of a file stand for much more text than the file may have.
func checkAliases(file *ast.File) error {
	sizes, total := map[string]int{}, 0
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		for _, n := range ast.Filter(ast.AnchorType, doc.Body) {
			anchor := n.(*ast.AnchorNode)
			name := anchor.Name.String()
			if len(ast.Filter(ast.AliasType, anchor.Value)) > 0 {
				return store.Invalid("anchor %q has an alias in it: write out its value", name)
			}
			sizes[name] = max(sizes[name], len(anchor.Value.String()))
		}
		for _, n := range ast.Filter(ast.AliasType, doc.Body) {
			total += sizes[n.(*ast.AliasNode).Value.String()]
		}
	}
	if total > maxScheduleFile {
		return store.TooLarge("its aliases stand for %d bytes: the limit is %d", total, maxScheduleFile)
	}
	return nil
}

// printChanges prints the changes that an apply made, or would make.
func (m *Main) printChanges(changes []later.ScheduleChange, dry bool) error {
	signs := map[later.PutResult]string{
		later.PutCreated: "+", later.PutChanged: "~", later.PutDeleted: "-",
	}
	count := map[later.PutResult]int{}
	for _, change := range changes {
		count[change.Result]++
		if m.json {
			if err := m.printJSON(view.ScheduleChange(change, dry)); err != nil {
				return err
			}
			continue
		}
		if change.Result == later.PutUnchanged {
			continue
		}
		if err := m.print("%s %s\n", signs[change.Result], printable(change.Name)); err != nil {
			return err
		}
		for _, f := range change.Fields {
			if err := m.print("    %s\n", describeField(f)); err != nil {
				return err
			}
		}
	}
	if m.json || len(changes) == 0 {
		return nil
	}
	text := fmt.Sprintf("%d created, %d changed, %d deleted, %d unchanged", count[later.PutCreated],
		count[later.PutChanged], count[later.PutDeleted], count[later.PutUnchanged])
	if dry {
		text += " (dry run: nothing was stored)"
	}
	return m.print("%s\n", text)
}

// maxShownField is how many characters of a field's value are shown.
const maxShownField = 200

func describeField(f schedule.FieldChange) string {
	before, after := preview(f.Old, maxShownField), preview(f.New, maxShownField)
	switch {
	case f.Old == "":
		return fmt.Sprintf("+ %s: %s", f.Name, after)
	case f.New == "":
		return fmt.Sprintf("- %s: %s", f.Name, before)
	}
	return fmt.Sprintf("~ %s: %s → %s", f.Name, before, after)
}
