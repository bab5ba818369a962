package wire

// StoreProblem is a condition of a store that needs a person. It is another thing than the problem of a request, which
// is why the request failed.
type StoreProblem struct {
	Kind     string        `json:"kind" doc:"A stable word, such as no_worker"`
	Severity string        `json:"severity" enum:"act,watch" doc:"act: messages are stopped or lost until a person acts; watch: it may pass by itself, or is meant so"`
	Text     string        `json:"text" doc:"One sentence that names the subject"`
	Queue    string        `json:"queue,omitempty"`
	Topic    string        `json:"topic,omitempty"`
	Schedule string        `json:"schedule,omitempty"`
	Key      string        `json:"key,omitempty"`
	Shard    *int          `json:"shard,omitempty" doc:"From 0: the shard that does not answer or has used up its share of a limit"`
	Shards   int           `json:"shards,omitempty" doc:"The number of shards of the queue, or the number to which it changes"`
	Message  string        `json:"message,omitempty" doc:"The id of a dead message, or of one that holds its key"`
	Worker   string        `json:"worker,omitempty" doc:"Of a single worker"`
	Workers  int           `json:"workers,omitempty"`
	Paused   []string      `json:"paused,omitempty" doc:"The names of the paused workers, if they are 5 at most"`
	By       string        `json:"by,omitempty" doc:"Who paused the queue"`
	Count    int64         `json:"count,omitempty" doc:"Messages that are due, given back or dead, halted keys, or runs"`
	Used     int64         `json:"used,omitempty" doc:"Messages in flight, busy handlers, or deaths in the last hour, 100 for more"`
	Limit    int64         `json:"limit,omitempty" doc:"The number of messages in flight that lets no more start"`
	Rate     *Rate         `json:"rate,omitempty" doc:"The rate that lets no more start"`
	Since    string        `json:"since,omitempty"`
	Error    string        `json:"error,omitempty" doc:"An error, or the pattern of most errors of dead messages"`
	Place    ProblemPlace  `json:"place"`
	Action   ProblemAction `json:"action"`
	Now      string        `json:"now"`
}

// ProblemPlace is where the web page shows the subject of a problem: parameters of its URL.
type ProblemPlace struct {
	View     string `json:"view,omitempty"`
	Queue    string `json:"queue,omitempty"`
	State    string `json:"state,omitempty"`
	Group    string `json:"group,omitempty"`
	Message  string `json:"message,omitempty"`
	Topic    string `json:"topic,omitempty"`
	Schedule string `json:"schedule,omitempty"`
}

// ProblemAction is the remedy of a problem.
type ProblemAction struct {
	Do      string   `json:"do" enum:"resume,resume_workers,resume_key,flow,keys,show" doc:"show: the place has more"`
	Command []string `json:"command" doc:"The arguments of the command later that does or shows it"`
	Shell   string   `json:"shell" doc:"The same as a line for a shell"`
}
