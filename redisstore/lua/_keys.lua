-- The keys of a queue, the same ten in every script (see keys.go).
local DUE, MSG, LEASE, EXPIRY, TRIES, DEAD, DONE, META, CALLS, WAKE = unpack(KEYS)
