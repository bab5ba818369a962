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
		`{"headers": {"a": 1, "A": 2}}`:                       "",
		`{"headers": {"a": 1, "a": 2}}`:                       "a",
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

func TestNamesAreInLowerCase(t *testing.T) {
	for text, want := range map[string]string{
		`{"id": 1, "dedup_window": 2, "grüße": 3}`:        "",
		`{"headers": {"Kind": "A"}, "payload": {"A": 1}}`: "", // the user's own
		`{"ID": 1}`:                   `field "ID" is unknown: did you mean id?`,
		`{"a": [{"b": 1, "Max": 1}]}`: `field "Max" is unknown: did you mean max?`,
		`{"Payload": {"A": 1}}`:       `field "Payload" is unknown: did you mean payload?`,
		`{"Headers": {"a": 1}}`:       `field "Headers" is unknown: did you mean headers?`,
		`{"state\u017f": 1}`:          "field \"state\u017f\" is unknown: did you mean states?",
		"{\"\u212aeep_id\": 1}":       "field \"\u212aeep_id\" is unknown: did you mean keep_id?",
	} {
		err := CheckNames([]byte(text))
		if want == "" && err != nil || want != "" && (!errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
