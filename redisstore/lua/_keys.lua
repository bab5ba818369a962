-- The keys of a queue, the same fifteen in every script; see keys.go.
local DUE, MESSAGES, LEASES, LEASE_DEADLINES, RECORDS, DEAD, DEDUP, META, SESSIONS, OLD_SESSIONS, BUCKETS,
  BUCKET_STARTS, BUCKET_COUNTS, WAKE, GROUPS = unpack(KEYS)
