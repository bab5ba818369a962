#!lua flags=allow-oom
--- Makes dead messages live again, with their attempts back at zero.
-- Their expiry no longer counts.
-- ARGV   1 caller, 2 number of its call
--        3 due ("+ms" from now, or ms since 1970), 4 latest time of death in ms or "" for now, then ids;
--        without ids: the MAX_BATCH that died first
-- Reply  {number, 1 when there may be more, latest time of death used}; NEWER
-- Safe   CALLS is written first; every other key that is written was read.
--@include keys
local meta = redis.call('HMGET', META, 'format')
--@include format
--@include now
--@include record
--@include write
--@include wake
--@include once
local answered = done_before(ARGV[1], ARGV[2])
if answered then return positions(answered) end
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
  if meta[1] then note_call(ARGV[1], ARGV[2], listed({ 0, 0, string.format('%.0f', before) })) end
  return { 0, 0, before }
end

local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
local records = redis.call('HMGET', TRIES, unpack(ids))
local due = {}
for i, id in ipairs(ids) do
  due[#due + 1] = at
  due[#due + 1] = id
  local epoch, _, _, pins = parse(records[i])
  keep(id, record(epoch, 0, '1', pins, ''))
end
if comes_first(head, at) then redis.call('ZCARD', WAKE) end
note_call(ARGV[1], ARGV[2], listed({ #ids, more, string.format('%.0f', before) }))
wake(head, at)
write('ZADD', DUE, due)
write('ZREM', DEAD, ids)
write_tries()
return { #ids, more, before }
