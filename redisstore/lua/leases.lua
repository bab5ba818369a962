#!lua flags=no-writes
--- Scans the open leases, one step per call.
-- ARGV   1 HSCAN cursor
-- Reply  {next cursor, for each lease: {lease text, deadline or false}}; NEWER
--@include keys
--@include format
if not reads(redis.call('HGET', META, 'format')) then return NEWER end
local step = redis.call('HSCAN', LEASES, ARGV[1], 'COUNT', 8)
local reply = { step[1] }
for i = 1, #step[2], 2 do
  reply[#reply + 1] = { step[2][i + 1], redis.call('ZSCORE', LEASE_DEADLINES, step[2][i]) }
end
return reply
