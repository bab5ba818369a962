#!lua flags=allow-oom
--- Acks the only message of a lease like ack.lua, but handles only the common case, at half the cost.
-- KEYS   as common.go lists them
-- ARGV   1 session, 2 request number, 3 lease, 4 length of its text, 5 id
-- Reply  0; UNCOMMON if nothing was done because the lease has ended or changed, the queue has another format, the
--        message has a record, a lease lists a cancelled or followed message, or the request is repeated or the first
--        after a turn of sessions
-- Safe   MESSAGES is written first; every other key was read before.
--@include keys
--@include clock
--@include common_session
local deadline = redis.call('ZSCORE', LEASE_DEADLINES, ARGV[3])
if not deadline or redis.call('HSTRLEN', LEASES, ARGV[3]) ~= tonumber(ARGV[4])
  or redis.call('HGET', META, 'format') ~= FORMAT then
  return UNCOMMON
end
-- The placeholder counts the cancelled and followed messages of leases; see _record_changes.lua.
if redis.call('EXISTS', RECORDS) > 0 and (string.sub(redis.call('HGET', RECORDS, '') or '', 1, 2) ~= '0\t'
  or redis.call('HEXISTS', RECORDS, ARGV[5]) == 1) then
  return UNCOMMON
end
local since = next_request(ARGV[1], ARGV[2])
local now = read_clock()
if not since or turns(since, now) or tonumber(deadline) <= now then return UNCOMMON end
redis.call('HDEL', MESSAGES, ARGV[5])
redis.call('HSET', SESSIONS, ARGV[1], ARGV[2])
redis.call('HDEL', LEASES, ARGV[3])
redis.call('ZREM', LEASE_DEADLINES, ARGV[3])
return 0
