// Package recurrence computes when a schedule runs next: by a cron expression, a fixed interval, an RRULE of RFC 5545,
// a list of times or a geometric series, in a time zone, with exclusions and jitter. It has no clock and no I/O, and
// the same Spec has the same times in every process. It imports store for its errors and nothing else of Later.
//
// Start with Compile in compile.go, which returns a Rule, and Rule.Next in rule.go. Cron expressions are parsed in
// cron.go, RRULEs in rrule_parse.go. Both become a set of local times ("walls"), which zoned.go translates to instants.
//
// # Where the clock changes
//
// A gap is the local time that a clock skips when it is set forward, an overlap is the time that it shows twice when it
// is set back.
//
//	times                                   in a gap                               in an overlap
//	cron with fixed hours and minutes,      shift: as much later as the clock      first: at the first of both
//	RRULE by the day, week, month or year   moves, so 02:30 becomes 03:30          both: at both
//	                                        skip: not at all
//	cron with *, */n or all of the hours    as above, if it does not have all      at both
//	or with * or */n for minutes            hours; else only times the clock shows
//	interval, series, RRULE by the hour,    elapsed time: the change has no        elapsed time
//	minute or second
//	list of times                           exact times                            exact times
//
// A shifted time that coincides with another one is one time, so nothing bunches up after a gap. RFC 5545 prescribes
// shift and first (3.3.5), and java.time, Temporal in JavaScript and package time of Go do the same: a job keeps its
// distance from midnight and from other jobs. Vixie cron starts all skipped jobs right after the gap instead.
//
// So a daily job runs once for each day. If the clock skips the last hour of a day, as in Nuuk in 2024, a time in that
// hour moves past midnight. If it skips a whole day, as in Samoa on 30 December 2011, the day has no run of its own:
// its shifted time is the time of the next day, and they are one. A weekly job that is due on that day runs on the next
// one.
//
// # Bounds
//
// Start is inclusive and End exclusive. Times are whole milliseconds, in cron expressions and RRULEs whole seconds,
// from the year 1 to 9999. A cron expression or RRULE that never runs is refused.
//
// Zone data comes from the machine or, if it has none, from this package, which embeds it. Processes with zone data of
// different years can disagree about future times in zones with rules that changed in between.
package recurrence
