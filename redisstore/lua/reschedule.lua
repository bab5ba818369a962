#!lua flags=allow-oom
--- Reschedules scheduled and ready messages.
-- ARGV   1 session, 2 request number, 3 due ("+ms" from now, or ms since 1970), then ids
-- Reply  for each id its state now; only "scheduled" and "ready" ones were changed, "" is unknown; NEWER
-- Safe   CALLS is written first; every other key that is written was read before. A packed message leaves its bucket.
--@include keys
local meta = redis.call('HMGET', META, 'format', 'far')
local packed = tonumber(meta[2] or '') or 0
--@include format
--@include now
--@include notify
--@include write
--@include buckets
--@include session
local previous = previous_reply(ARGV[1], ARGV[2])
if previous then return decode_words(previous) end
local at = due_at(ARGV[3])
local ids = { unpack(ARGV, 4) }
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
local due = redis.call('ZMSCORE', DUE, unpack(ids))
local dead = redis.call('ZMSCORE', DEAD, unpack(ids))
local states, moved, removed_ids = {}, {}, {}
for i, id in ipairs(ids) do
  local packed_at, b
  if packed > 0 and not due[i] and not dead[i] then packed_at, b = packed_due(id) end
  if due[i] or packed_at or removed_ids[id] then
    states[i] = at > now and 'scheduled' or 'ready'
    moved[#moved + 1] = at
    moved[#moved + 1] = id
    if packed_at then
      remove_line(b, packed_at, id)
      removed_ids[id] = true
    end
  elseif dead[i] then
    states[i] = 'dead'
  else
    states[i] = redis.call('HEXISTS', MSG, id) == 1 and 'leased' or ''
  end
end
if #moved > 0 and is_earliest(head, at) then redis.call('ZCARD', WAKE) end
if meta[1] then record_request(ARGV[1], ARGV[2], encode_list(states)) end
if #moved > 0 then
  notify(head, at)
  redis.call('ZADD', DUE, unpack(moved))
  write_buckets()
end
return states
