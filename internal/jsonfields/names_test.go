package jsonfields

import (
	"errors"
	"strings"
	"testing"

	"github.com/laterq/later/store"
)

func TestNamesAreGivenOnce(t *testing.T) {
	for text, twice := range map[string]string{
		`{"a": 1, "b": {"a": 1}}`:                             "",
		`[{"a": 1}, {"a": 1}]`:                                "",
		`"text"`:                                              "",
		`{"payload": {"a": 1, "a": 2}, "b": 1}`:               "", // the user's own
		`{"a": 1, "a": 1}`:                                    "a",
		`{"\u0061": 1, "a": 1}`:                               "a",
		`{"payload": 1, "payload": 2}`:                        "payload",
		`{"max": 1, "MAX": 2}`:                                "MAX",
		`{"headers": {"a": 1, "A": 2}}`:                       "",
		`{"headers": {"a": 1, "a": 2}}`:                       "a",
		`{"Headers": 1, "headers": 2}`:                        "headers",
		`{"state\u017f": 1, "states": 2}`:                     "states",
		`[1, {"messages": [{"b": 1, "b": 2}]}]`:               "b",
		strings.Repeat("[", 5000) + strings.Repeat("]", 5000): "",
	} {
		err := CheckNames([]byte(text))
		if twice == "" && err != nil || twice != "" &&
			(!errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), `field "`+twice+`" is given twice`)) {
			t.Errorf("%.50s: %v", text, err)
		}
	}
}
