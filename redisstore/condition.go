package redisstore

import "github.com/laterq/later/store"

// addConditionKey adds the key that the condition of a call needs, after the others.
func (s *Store) addConditionKey(c *call, queue string, condition *store.Condition) {
	if condition != nil {
		c.addKey(s.keys.key(queue, propertiesKey))
	}
}

// addCondition adds a condition, which may be nil, to the arguments of a script that always takes one.
func (c *call) addCondition(condition *store.Condition) {
	if condition == nil {
		condition = &store.Condition{}
	}
	c.add(condition.Property, condition.Value)
}

// isConflict reports whether a script replied that its condition is not met.
func isConflict(reply any) bool { return reply == any(int64(replyConflict)) }
