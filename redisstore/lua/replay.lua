#!lua flags=allow-oom
--- Replays dead messages, with their attempts reset to zero and their failures kept. Their expiry no longer applies.
-- ARGV   1 session, 2 request number
--        3 due ("+ms" from now, or ms since 1970), 4 latest time of death in ms or "" for now, then ids;
--        without ids: the MAX_BY_ID that died first
-- Reply  {number, 1 if there may be more, latest time of death used}; NEWER
-- Safe   SESSIONS is written first; every other key that is written was read before.
--@include keys
--@include format
--@include clock
--@include due
--@include record_changes
--@include earliest
--@include waiting
--@include session
--@include reply_bulk
--@flow
--@include holds
--@end
local format = redis.call('HGET', META, 'format')
if not writes(format) then return NEWER end
local now, now_us = read_clock()
local previous = previous_reply(ARGV[1], ARGV[2])
if previous then return decode_bulk(previous) end
local at = due_at(now_us, ARGV[3])
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
  ids = redis.call('ZRANGE', DEAD, '-inf', before, 'BYSCORE', 'LIMIT', 0, MAX_BY_ID)
  if #ids == MAX_BY_ID then more = 1 end
end
local reply = encode_bulk(#ids, more, before)
if #ids == 0 then
  if format then record_request(ARGV[1], ARGV[2], now, reply) end
  return { 0, 0, before }
end

local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
local records = redis.call('HMGET', RECORDS, unpack(ids))
local due, changes = {}, new_record_changes()
for i, id in ipairs(ids) do
  due[#due + 1], due[#due + 2] = at, id
  local epoch, _, _, refcount, rest = parse_record(records[i])
  local failures = failures_of(rest)
  changes.set(id, format_record(epoch, 0, '1', refcount, failures ~= '' and '\t\t' .. failures .. '\t' or ''))
end
--@flow
local held, names = holds_of(ids)
read_slots()
--@end
local anyone = is_earliest(head, at) and redis.call('ZCARD', WAKE) > 0
record_request(ARGV[1], ARGV[2], now, reply)
if anyone then notify(at, now) end
write('ZADD', DUE, due)
write('ZREM', DEAD, ids)
changes.write()
--@flow
if names[1] then -- the messages go first
  change_holds(read_limits(now_us), names, function(k)
    return k.letter == 'd' and held[k.holder] and 'w' or k.letter
  end)
end
--@end
return { #ids, more, before }
