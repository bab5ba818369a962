package access

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/laterq/later/internal/nearest"
	"github.com/laterq/later/store"
)

// value is a value in a YAML file, with its place for errors.
type value struct {
	node ast.Node
	line int
	path string // such as tokens[0].role
}

// parseYAML returns the only document of a YAML text. Its node is nil if the text is empty.
func parseYAML(text []byte) (root value, err error) {
	defer func() {
		if p := recover(); p != nil { // fuzzing finds such texts in the parser
			err = store.Invalid("not YAML: the parser failed: %v", p)
		}
	}()
	file, err := parser.ParseBytes(text, 0)
	switch {
	case err != nil: // without the lines of the file around it, which can hold anything
		return value{}, store.Invalid("not YAML: %s", strings.TrimSpace(yaml.FormatError(err, false, false)))
	case len(file.Docs) > 1:
		return value{}, store.Invalid("it has %d YAML documents: give one", len(file.Docs))
	case len(file.Docs) == 0:
		return value{}, nil
	}
	return value{node: file.Docs[0].Body, line: 1}, nil
}

// errorf returns an ErrInvalid that names the value and its line.
func (v value) errorf(format string, args ...any) error {
	return store.Invalid("line %d: %s %s", v.line, cmp.Or(v.path, "the file"), fmt.Sprintf(format, args...))
}

// at returns a value in this one.
func (v value) at(node ast.Node, key ast.Node, path string) value {
	if t := key.GetToken(); t != nil && t.Position != nil {
		return value{node, t.Position.Line, path}
	}
	return value{node, v.line, path}
}

// each calls f with the values of an object, by their names.
func (v value) each(f func(name string, field value) error) error {
	object, ok := v.node.(ast.MapNode)
	if !ok {
		return v.errorf("is %s: give an object with fields", v.kind())
	}
	for fields := object.MapRange(); fields.Next(); {
		name, ok := text(fields.Key())
		if !ok {
			return v.at(v.node, fields.Key(), v.path).errorf("has a name that is no text")
		}
		path := name
		if v.path != "" {
			path = v.path + "." + name
		}
		if err := f(name, v.at(fields.Value(), fields.Key(), path)); err != nil {
			return err
		}
	}
	return nil
}

// object reads an object with the given fields. A field that is not among them is an error.
func (v value) object(fields map[string]func(value) error) error {
	return v.each(func(name string, field value) error {
		read, ok := fields[name]
		if !ok {
			names := slices.Sorted(maps.Keys(fields))
			return field.errorf("is unknown%s",
				nearest.DidYouMean(name, names, "give some of "+strings.Join(names, ", ")))
		}
		return read(field)
	})
}

// list calls f with each value of a list.
func (v value) list(f func(value) error) error {
	list, ok := v.node.(*ast.SequenceNode)
	if !ok {
		return v.errorf("is %s: give a list", v.kind())
	}
	for i, node := range list.Values {
		if err := f(v.at(node, node, fmt.Sprintf("%s[%d]", v.path, i))); err != nil {
			return err
		}
	}
	return nil
}

// text returns a text that is not empty.
func (v value) text() (string, error) {
	s, ok := text(v.node)
	switch {
	case !ok:
		return "", v.errorf("is %s: give a text, in quotes if it looks like something else", v.kind())
	case s == "":
		return "", v.errorf("is empty: give a text")
	}
	return s, nil
}

// parsed returns the text of a value as a function parses it. An error of the function becomes one of the value.
func parsed[T any](v value, parse func(text string) (T, error)) (result T, err error) {
	text, err := v.text()
	if err != nil {
		return result, err
	}
	if result, err = parse(text); err != nil {
		return result, v.errorf("%v", err)
	}
	return result, nil
}

// checked returns a function that parses a text to itself if a check allows it.
func checked(check func(text string) error) func(text string) (string, error) {
	return func(text string) (string, error) { return text, check(text) }
}

// set returns a function that reads a field.
func set[T any](field *T, parse func(text string) (T, error)) func(value) error {
	return func(v value) (err error) {
		*field, err = parsed(v, parse)
		return err
	}
}

// setList returns a function that reads a field that is a list.
func setList[T any](field *[]T, parse func(text string) (T, error)) func(value) error {
	return func(v value) error {
		return v.list(func(v value) error {
			one, err := parsed(v, parse)
			*field = append(*field, one)
			return err
		})
	}
}

// boolean returns true or false.
func (v value) boolean() (bool, error) {
	b, ok := v.node.(*ast.BoolNode)
	if !ok {
		return false, v.errorf("is %s: give true or false", v.kind())
	}
	return b.Value, nil
}

func text(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}

// kind describes the kind of the value, for errors.
func (v value) kind() string {
	switch v.node.(type) {
	case nil, *ast.NullNode:
		return "empty"
	case ast.MapNode:
		return "an object"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "a text"
	case *ast.BoolNode:
		return "true or false"
	case *ast.IntegerNode, *ast.FloatNode:
		return "a number"
	case *ast.AliasNode, *ast.AnchorNode, *ast.TagNode:
		return "an alias, an anchor or a tag, which this file cannot have"
	}
	return "something else"
}
