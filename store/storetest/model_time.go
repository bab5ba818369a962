package storetest

import (
	"slices"

	"github.com/laterq/later/store"
)

// moments returns the future times when something changes by the clock alone.
func (m *model) moments() []int64 {
	var all []int64
	for _, x := range m.messages {
		all = append(all, x.due, x.due+store.Millis(x.ExpireAfter), ms(x.ExpireAt))
	}
	for _, x := range m.in(store.StateDead) {
		all = append(all, x.diedAt+m.retained.MaxAge.Milliseconds())
	}
	for _, l := range m.leases {
		all = append(all, l.deadline)
	}
	for _, until := range m.dedup {
		all = append(all, until)
	}
	for _, known := range m.once {
		all = append(all, known.ends)
	}
	if m.flow.Rate.N > 0 {
		all = append(all, (m.flow.earliest()+999)/1000)
	}
	all = append(all, m.keyMoments()...)
	all = slices.DeleteFunc(all, func(t int64) bool { return t <= m.now })
	slices.Sort(all)
	return slices.Compact(all)
}
