package wire

import (
	"time"

	"github.com/laterq/later/internal/jsonfields"
	"github.com/laterq/later/internal/message"
)

// ScheduleFields are the JSON of a schedule, which its rule is a part of. The HTTP API describes them.
type ScheduleFields struct {
	Name  string `json:"name,omitempty" maxLength:"80" doc:"Default: that of the path"`
	Queue string `json:"queue,omitempty" maxLength:"128" doc:"Receives the messages; topic:NAME is a topic"`
	Set   string `json:"set,omitempty" maxLength:"80" doc:"Of schedules that are applied together"`
	message.Payload
	Headers map[string]string `json:"headers,omitempty" maxProperties:"61"`
	message.Common
	Missed       string              `json:"missed,omitempty" enum:"none,one,all" doc:"Which runs are made up for that no worker was there for. Default: one, the latest"`
	MissedWithin jsonfields.Duration `json:"missed_within,omitempty" doc:"Make up for runs of this age or less. Default: the distance between runs, but 1h to 31d; of missed all, missed_max times that"`
	MissedMax    int                 `json:"missed_max,omitempty" minimum:"1" maximum:"10000" doc:"Of missed all: make up for so many runs. Default: 100"`
	Unfinished   string              `json:"unfinished,omitempty" enum:"skip,allow,buffer" doc:"What happens to a run while the one before is unfinished. Default: skip"`
	Rule
}

// Rule is the JSON of a recurrence.Spec.
type Rule struct {
	Cron     string              `json:"cron,omitempty" doc:"A cron expression, or a name such as @daily. Give one of cron, every, rrule, times and series"`
	Every    jsonfields.Duration `json:"every,omitempty" doc:"An interval from start"`
	RRule    string              `json:"rrule,omitempty" doc:"A rule of RFC 5545; start is its DTSTART"`
	Times    []time.Time         `json:"times,omitempty" maxItems:"10000"`
	Series   *RuleSeries         `json:"series,omitempty" doc:"Delays from start that grow or shrink"`
	TimeZone string              `json:"time_zone,omitempty" doc:"Of cron and rrule, such as Europe/Berlin. Default: UTC"`
	Start    time.Time           `json:"start,omitzero" doc:"The earliest time. Default: when the schedule is created"`
	End      time.Time           `json:"end,omitzero" doc:"There are no runs from this time on"`
	Exclude  []string            `json:"exclude,omitempty" maxItems:"1000" doc:"Days, times, and ranges of them, such as 2030-12-24/2030-12-31"`
	Jitter   jsonfields.Duration `json:"jitter,omitempty" doc:"Delay each run by up to this, the same each time"`
	MaxRuns  int                 `json:"max_runs,omitempty" minimum:"0" doc:"The schedule has finished after so many runs. Default: no limit"`
	Gap      string              `json:"gap,omitempty" enum:"shift,skip" doc:"What happens to a local time that the clock skips. Default: shift"`
	Overlap  string              `json:"overlap,omitempty" enum:"first,both" doc:"What happens to a local time that the clock shows twice. Default: first"`
}

// RuleSeries is the JSON of a recurrence.Series.
type RuleSeries struct {
	First  jsonfields.Duration `json:"first" doc:"The first delay"`
	Factor float64             `json:"factor" doc:"Each further delay is so many times the one before"`
	Min    jsonfields.Duration `json:"min,omitempty"`
	Max    jsonfields.Duration `json:"max,omitempty"`
	Count  int                 `json:"count" minimum:"1" maximum:"10000"`
}
