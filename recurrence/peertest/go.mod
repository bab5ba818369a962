module github.com/laterq/later/recurrence/peertest

go 1.26.0

require (
	github.com/laterq/later v0.0.0
	github.com/robfig/cron/v3 v3.0.1
)

require (
	github.com/teambition/rrule-go v1.8.2 // indirect
	github.com/tidwall/gjson v1.20.1 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/pretty v1.2.0 // indirect
)

replace github.com/laterq/later => ../../
