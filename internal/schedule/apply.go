package schedule

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// FieldChanges returns the fields that differ. Each schedule may be nil.
func FieldChanges(before, after *Schedule) (changes []FieldChange, err error) {
	old, err := jsonFields(before)
	if err != nil {
		return nil, err
	}
	now, err := jsonFields(after)
	if err != nil {
		return nil, err
	}
	all := slices.Sorted(maps.Keys(old))
	all = slices.AppendSeq(all, maps.Keys(now))
	slices.Sort(all)
	for _, name := range slices.Compact(all) {
		if !bytes.Equal(old[name], now[name]) {
			changes = append(changes, FieldChange{name, string(old[name]), string(now[name])})
		}
	}
	return changes, nil
}

func jsonFields(s *Schedule) (fields map[string]json.RawMessage, err error) {
	if s == nil {
		return nil, nil
	}
	text, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	return fields, err
}

// FieldChange is a field of a schedule that differs.
type FieldChange struct{ Name, Old, New string } // values as JSON
