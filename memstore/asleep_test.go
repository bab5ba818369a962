package memstore

// Asleep returns how many calls of Wait on a queue sleep.
func (s *Store) Asleep(queue string) int {
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	if n := s.data.notifiers[queue]; n != nil {
		return n.waiting
	}
	return 0
}
