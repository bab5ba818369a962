--@plain
-- The keys of a queue, the same fifteen in every script; see keys.go.
local DUE, MESSAGES, LEASES, LEASE_DEADLINES, RECORDS, DEAD, DEDUP, META, SESSIONS, OLD_SESSIONS, BUCKETS,
  BUCKET_STARTS, BUCKET_COUNTS, WAKE, GROUPS = unpack(KEYS)
--@end
--@flow
-- The keys of a queue, the same in every script for flows; see keys.go. The eleven from LANES on are of turns; see
-- _lanes.lua.
local DUE, MESSAGES, LEASES, LEASE_DEADLINES, RECORDS, DEAD, DEDUP, META, SESSIONS, OLD_SESSIONS, BUCKETS,
  BUCKET_STARTS, BUCKET_COUNTS, WAKE, GROUPS, LANES, KEY_STATES, TURNS, RESTS, OLD_RESTS, FORGET, KEY_FLOWS,
  HOLDERS, HALTED, TURNS_HIGH, TURNS_LOW = unpack(KEYS)
--@end
--@sub
-- No call creates a sub-queue, but create.lua and rename.lua.
if redis.pcall('HEXISTS', META, 'format') == 0 then return GONE end
--@end
