#!lua flags=no-writes
--- Reads messages by id, as many as a reply may hold.
-- ARGV   ids
-- Reply  {now, for each id read: {envelope or false, due or false, time of death or false, record or false}}
--@include keys
--@include now
local reply, bytes = { now }, 0
for i, id in ipairs(ARGV) do
  local envelope = redis.call('HGET', MSG, id)
  if envelope then
    bytes = bytes + #envelope
    if bytes > MAX_BYTES and i > 1 then break end
    reply[i + 1] = { envelope, redis.call('ZSCORE', DUE, id), redis.call('ZSCORE', DEAD, id), redis.call('HGET', TRIES, id) }
  else
    reply[i + 1] = { false, false, false, false }
  end
end
return reply
