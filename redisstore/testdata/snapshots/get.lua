#!lua flags=no-writes
--- Reads messages by id, as many as a reply may hold.
-- ARGV   ids
-- Reply  {now, for each id read: {envelope or false, due or false, time of death or false, record or false}}
-- The keys of a queue, the same nine in every script (see keys.go).
local DUE, MSG, LEASE, EXPIRY, TRIES, DEAD, DONE, META, WAKE = unpack(KEYS)
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local reply, bytes = { now }, 0
for i, id in ipairs(ARGV) do
  local envelope = redis.call('HGET', MSG, id)
  if envelope then
    bytes = bytes + #envelope
    if bytes > 4194304 and i > 1 then break end
    reply[i + 1] = { envelope, redis.call('ZSCORE', DUE, id), redis.call('ZSCORE', DEAD, id), redis.call('HGET', TRIES, id) }
  else
    reply[i + 1] = { false, false, false, false }
  end
end
return reply
