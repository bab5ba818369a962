module github.com/laterq/later/recurrence/peertest

go 1.26.0

require (
	github.com/laterq/later v0.0.0
	github.com/robfig/cron/v3 v3.0.1
)

require github.com/teambition/rrule-go v1.8.2 // indirect

replace github.com/laterq/later => ../../
