#!lua flags=allow-oom
--- Replays dead messages, with their attempts reset to zero. Their expiry no longer applies.
-- ARGV   1 session, 2 request number
--        3 due ("+ms" from now, or ms since 1970), 4 latest time of death in ms or "" for now, then ids;
--        without ids: the MAX_BATCH that died first
-- Reply  {number, 1 if there may be more, latest time of death used}; NEWER
-- Safe   CALLS is written first; every other key that is written was read before.
--@include keys
local meta = redis.call('HMGET', META, 'format')
--@include format
--@include now
--@include record
--@include write
--@include notify
--@include session
local previous = previous_reply(ARGV[1], ARGV[2])
if previous then return decode_positions(previous) end
local at = due_at(ARGV[3])
local before = tonumber(ARGV[4]) or now
local ids, more = {}, 0
if #ARGV > 4 then
  local scores = redis.call('ZMSCORE', DEAD, unpack(ARGV, 5))
  local seen = {}
  for i, score in ipairs(scores) do
    local id = ARGV[i + 4]
    if score and not seen[id] then
      seen[id] = true
      ids[#ids + 1] = id
    end
  end
else
  ids = redis.call('ZRANGE', DEAD, '-inf', before, 'BYSCORE', 'LIMIT', 0, MAX_BATCH)
  if #ids == MAX_BATCH then more = 1 end
end
if #ids == 0 then
  if meta[1] then record_request(ARGV[1], ARGV[2], encode_list({ 0, 0, string.format('%.0f', before) })) end
  return { 0, 0, before }
end

local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
local records = redis.call('HMGET', TRIES, unpack(ids))
local due = {}
for i, id in ipairs(ids) do
  due[#due + 1] = at
  due[#due + 1] = id
  local epoch, _, _, refcount = parse(records[i])
  set_record(id, record(epoch, 0, '1', refcount, ''))
end
if is_earliest(head, at) then redis.call('ZCARD', WAKE) end
record_request(ARGV[1], ARGV[2], encode_list({ #ids, more, string.format('%.0f', before) }))
notify(head, at)
write('ZADD', DUE, due)
write('ZREM', DEAD, ids)
write_records()
return { #ids, more, before }
