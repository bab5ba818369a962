package store

// Local is an optional interface of a Store with all users in this process, such as the store of a test. Its workers do
// not look every few seconds for changes of properties, because it tells them.
type Local interface {
	// PropertiesChanged returns a channel that is closed when properties of a queue are set the next time.
	PropertiesChanged(queue string) <-chan struct{}
}
