#!lua flags=no-writes
--- Reads messages by id, as many as fit in a reply.
-- ARGV   ids
-- Reply  {now, for each id read: {value or false, due or false, time of death or false, record or false}}
--@include keys
--@include now
local packed = tonumber(redis.call('HGET', META, 'far') or '') or 0
--@include buckets
local reply, bytes = { now }, 0
for i, id in ipairs(ARGV) do
  local envelope = redis.call('HGET', MSG, id)
  if envelope then
    bytes = bytes + #envelope
    if bytes > MAX_BYTES and i > 1 then break end
    local due, died = redis.call('ZSCORE', DUE, id), redis.call('ZSCORE', DEAD, id)
    if not due and not died then
      due = packed > 0 and packed_due(id, envelope)
      due = due and string.format('%.0f', due)
    end
    reply[i + 1] = { envelope, due or false, died, redis.call('HGET', TRIES, id) }
  else
    reply[i + 1] = { false, false, false, false }
  end
end
return reply
