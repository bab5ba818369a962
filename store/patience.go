package store

import "context"

type patientKey struct{}

// Patient returns a context that lets Store.Wait take up to about a minute instead of seconds to return when every
// notification is lost. An engine then has less to do for a queue that is idle most of the time.
func Patient(ctx context.Context) context.Context { return context.WithValue(ctx, patientKey{}, true) }

// IsPatient reports whether ctx is one that Patient returned, or a descendant of it.
func IsPatient(ctx context.Context) bool { return ctx.Value(patientKey{}) != nil }
