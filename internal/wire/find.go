package wire

// Found is a line of a search of all queues: a message, a name, how far the search is, or why it ended early. M is the
// JSON of a message.
type Found[M, P any] struct {
	Stage    string        `json:"stage,omitempty" enum:"id,name,content" doc:"How it was found: by its exact id, by its name, or by the content of the message"`
	Message  *M            `json:"message,omitempty"`
	Name     *FoundName    `json:"name,omitempty"`
	Progress *FindProgress `json:"progress,omitempty"`
	Problem  *P            `json:"problem,omitempty" doc:"Why the search ended early; the last line"`
}

// FoundName is a thing with a name.
type FoundName struct {
	Kind  string `json:"kind" enum:"queue,topic,schedule,worker,group,series"`
	Name  string `json:"name"`
	Queue string `json:"queue,omitempty" doc:"The queue itself, the queue of a topic, group or series, or the queue to which a schedule sends"`
}

// FindProgress is how far a search of all queues is.
type FindProgress struct {
	Conditions   string      `json:"conditions" doc:"The conditions of the text, in words"`
	Queues       int         `json:"queues" doc:"How many queues are searched"`
	LeftOut      int         `json:"left_out,omitempty" doc:"How many of them cannot be read"`
	NamesLeftOut int         `json:"names_left_out,omitempty" doc:"How many names are not among the results: those after the first 50 of a kind, and all schedules after the first 1,000 by name, which are not looked at"`
	Messages     StateCounts `json:"messages" doc:"Messages in these queues; zero before the stage content"`
	Looked       StateCounts `json:"looked" doc:"Messages that this request has looked at"`
	Matched      StateCounts `json:"matched" doc:"How many of them matched"`
	Done         bool        `json:"done" doc:"All messages were looked at"`
	Next         string      `json:"next,omitempty" doc:"The cursor of a request that goes on; the last line has it unless all is done"`
}

// StateCounts counts messages by state.
type StateCounts struct {
	Scheduled int64 `json:"scheduled"`
	Ready     int64 `json:"ready"`
	Leased    int64 `json:"leased"`
	Dead      int64 `json:"dead"`
}
