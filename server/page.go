package server

// Page is a page of a list: every list is one.
type Page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty" doc:"The cursor of the next page; the last page has none"`
}

// PageQuery selects a page of a list.
type PageQuery struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"How many items the page has at most"`
	Cursor string `query:"cursor" maxLength:"1024" doc:"The next of the page before. Default: the first page"`
}
