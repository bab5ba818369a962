package wire

// Change is a change that a caller made through a server.
type Change struct {
	ID         string         `json:"id"`
	Time       string         `json:"time"`
	Who        string         `json:"who"`
	What       string         `json:"what"`
	Queue      string         `json:"queue,omitempty"`
	Attributes map[string]any `json:"attributes" doc:"To what it was done, such as id, count and filter"`
	Undone     *Undone        `json:"undone,omitempty"`
}

// Undone is who undid a change.
type Undone struct {
	Time   string `json:"time"`
	Who    string `json:"who"`
	Change string `json:"change" doc:"The change that undid it"`
}
