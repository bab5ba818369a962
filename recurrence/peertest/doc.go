// Package peertest compares package recurrence with robfig/cron, which the main module does not depend on.
package peertest
