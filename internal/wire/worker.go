package wire

import "time"

// Worker is a live worker.
type Worker struct {
	Name        string   `json:"name"`
	ID          string   `json:"id"`
	State       string   `json:"state" enum:"running,paused,draining"`
	Host        string   `json:"host"`
	PID         int      `json:"pid"`
	Process     string   `json:"process"`
	Version     string   `json:"version,omitempty"`
	Concurrency int      `json:"concurrency"`
	Queues      []string `json:"queues"`
	QueueCount  int      `json:"queue_count"`
	HeldCount   int      `json:"held_count"`
	Held        []Held   `json:"held"`
	Forwarding  int      `json:"forwarding"`
	// Forwards is left out if the worker forwards nothing.
	Forwards []Forwarded `json:"forwards,omitempty"`
	// GivenBack is left out if the worker gives nothing back.
	GivenBack []GivenBack `json:"given_back,omitempty"`
	Started   string      `json:"started"`
	Heartbeat string      `json:"heartbeat"`
	Now       string      `json:"now"`
}

// Forwarded is a queue with the destination to which a worker moves its messages.
type Forwarded struct {
	Queue string `json:"queue"`
	To    string `json:"to"`
}

// GivenBack is messages of a kind that a worker has given back for another version of the program.
type GivenBack struct {
	Queue    string `json:"queue"`
	Kind     string `json:"kind,omitempty"`
	Error    string `json:"error,omitempty"`
	Messages int    `json:"messages"`
}

// Held is a message that a handler holds.
type Held struct {
	Queue   string   `json:"queue"`
	ID      string   `json:"id"`
	Key     string   `json:"key,omitempty"`
	Attempt int      `json:"attempt"`
	Since   string   `json:"since"`
	HeldFor Duration `json:"held_for"`
}

// NewHeld returns the JSON of a message that is held.
func NewHeld(queue, id, key string, attempt int, since, now time.Time) Held {
	return Held{Queue: queue, ID: id, Key: key, Attempt: attempt, Since: FormatTime(since),
		HeldFor: Measured(max(0, now.Sub(since)))}
}

// Commanded is a worker that received a command.
type Commanded struct {
	Name    string `json:"name"`
	ID      string `json:"id"`
	Command string `json:"command"`
	// Done is false if the caller did not wait for the end of the command.
	Done bool `json:"done"`
}
