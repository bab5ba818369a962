-- The keys of a queue, the same twelve in every script; see keys.go.
local DUE, MSG, LEASE, EXPIRY, TRIES, DEAD, DONE, META, CALLS, FAR, FARS, WAKE = unpack(KEYS)
