package remote

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write testdata/layout.txt")

// layout describes the encoded fields of a type and of the structs in it, each type in a line of its own.
func layout(t reflect.Type, lines map[string]string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		layout(t.Elem(), lines)
	case reflect.Map:
		layout(t.Key(), lines)
		layout(t.Elem(), lines)
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() || t == reflect.TypeFor[Server]() || lines[t.String()] != "" {
			return
		}
		var fields []string
		lines[t.String()] = "{}"
		for i := range t.NumField() {
			f := t.Field(i)
			fields = append(fields, fmt.Sprintf("%s %v", f.Name, f.Type))
			layout(f.Type, lines)
		}
		lines[t.String()] = "{" + strings.Join(fields, "; ") + "}"
	}
}

// TestProtocolChangesOnPurpose fails when a field of a struct that is sent is added, removed or moved.
func TestProtocolChangesOnPurpose(t *testing.T) {
	lines := map[string]string{}
	for _, e := range endpoints {
		run, _ := reflect.TypeOf(e).Elem().FieldByName("run")
		for i := range run.Type.NumIn() {
			layout(run.Type.In(i), lines)
			if of := run.Type.In(i); of.Kind() == reflect.Func && of.NumIn() > 0 { // a stream sends its results
				layout(of.In(0), lines)
			}
		}
		layout(run.Type.Out(0), lines)
	}
	var all []string
	for name, fields := range lines {
		if strings.HasPrefix(name, "store.") || strings.HasPrefix(name, "remote.") {
			all = append(all, name+" "+fields)
		}
	}
	slices.Sort(all)
	got := strings.Join(all, "\n") + "\n"
	const file = "testdata/layout.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || got != string(want) {
		t.Errorf("the structs that are sent differ from %s (%v):\n%s\nRaise maxVersion, and minVersion if "+
			"programs of both versions would misunderstand each other: an older program executes a call with a new field and "+
			"then cannot read the reply. Then run this test with -update.", file, err, got)
	}
}
