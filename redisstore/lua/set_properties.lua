#!lua flags=allow-oom
--- Sets and removes properties of a queue.
-- KEYS   the keys of every script, then the properties
-- ARGV   1 session, 2 request number
--        3 "1" if the queue's name is registered and the queue may be created
--        4 "1" if there is a condition, 5 its property, 6 its value
--        then for each property: name, value or "" to remove it
-- Reply  number of properties that the queue has then; with more than MAX_PROPERTIES nothing was changed;
--        UNREGISTERED, NEWER; CONFLICT if the condition is not met
-- Safe   SESSIONS is written first; META and PROPERTIES were read before.
--@include keys
--@include format
--@include clock
--@include session
--@include condition
--@include write
local PROPERTIES = KEYS[QUEUE_KEYS + 1]
local format = redis.call('HGET', META, 'format')
if not writes(format) then return NEWER end
local previous = previous_reply(ARGV[1], ARGV[2])
if previous == UNMET then return CONFLICT end
if previous then return tonumber(previous) or 0 end
if not is_met(ARGV[4] == '1' and PROPERTIES, ARGV[5], ARGV[6]) then
  return refuse(ARGV[1], ARGV[2], (read_clock()), format)
end
local count = redis.call('HLEN', PROPERTIES)
local set, removed = {}, {}
for a = 7, #ARGV, 2 do
  local name, value = ARGV[a], ARGV[a + 1]
  local exists = redis.call('HEXISTS', PROPERTIES, name) == 1
  if value ~= '' then
    set[#set + 1], set[#set + 2] = name, value
    if not exists then count = count + 1 end
  elseif exists then
    removed[#removed + 1] = name
    count = count - 1
  end
end
if not format then
  if not set[1] then return count end
  if ARGV[3] ~= '1' then return UNREGISTERED end
end
record_request(ARGV[1], ARGV[2], (read_clock()), tostring(count))
if count > MAX_PROPERTIES then return count end
if not format then redis.call('HSET', META, 'format', FORMAT) end
write('HSET', PROPERTIES, set)
write('HDEL', PROPERTIES, removed)
return count
