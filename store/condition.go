package store

// Condition is met while a property of a queue has a value. With the value "" it is met while the queue does not have
// the property. A call that carries one checks it in its own atomic step, so that it does nothing once another process
// has changed the property. See Outgoing.If, Settlement.If and Store.SetProperties.
type Condition struct {
	Property, Value string
}

// EqualCondition reports whether two conditions are the same. Nil stands for no condition.
func EqualCondition(a, b *Condition) bool { return a == b || a != nil && b != nil && *a == *b }
