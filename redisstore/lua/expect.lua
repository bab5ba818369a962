#!lua flags=allow-oom
--- Has a queue expect keys from another sub-queue, which start no message until they arrive, or others no longer.
-- KEYS   the keys of every script, then the outbox
-- ARGV   1 session, 2 request number
--        3 name of the other sub-queue or "", 4 number of the last parcel that has departed from there
--        5 time in us that is smaller than all later places and fences
--        6 "" to end nothing, or where to go on among the keys that are expected no longer, "0" at first
--        then keys: they are expected if 6 is ""; otherwise they stay as they are
-- Reply  {the last place or fence in us; where to go on, "0" at the end}; CONFLICT if a later parcel has arrived; NEWER
-- Safe   SESSIONS is written first; every other key was read before. A late attempt of a call that was repeated changes
--        nothing: a key may have arrived in between. A queue without turns expects nothing.
--@include keys
--@include format
--@include clock
--@include session
--@include condition
--@flow
--@include holds
--@include overrides
--@include run
--@end
local OUTBOX = KEYS[QUEUE_KEYS + 1]
local format = redis.call('HGET', META, 'format')
if not writes(format) then return NEWER end
local now = read_clock()
local arrived = tonumber(redis.call('HGET', OUTBOX, ':' .. ARGV[3]) or '') or 0
local previous = previous_reply(ARGV[1], ARGV[2])
local last, cursor = 0, '0'
--@flow
local _, now_us = read_clock()
local order, arrival, fence = unpack(redis.call('HMGET', META, 'flow_key_order', 'flow_arrival_us', 'flow_fence_us'))
arrival, fence = tonumber(arrival or '') or 0, tonumber(fence or '') or 0
last = math.max(arrival, fence)
--@end
if previous == UNMET then return CONFLICT end
if previous then
  if format then redis.call('HSET', META, 'format', format) end -- see safely.go
  return { last, previous }
end
local begins = ARGV[6] == '' or ARGV[6] == '0'
if begins and arrived > tonumber(ARGV[4]) then return refuse(ARGV[1], ARGV[2], now, format) end
--@plain
if format then record_request(ARGV[1], ARGV[2], now, cursor) end
--@end
--@flow
local limits = read_limits(now_us)
read_slots()
local names, given, set, unset = {}, {}, {}, {} -- names: of the keys that change

-- mark sets or removes the mark of a key with limits of its own, nil for none.
local function mark(name, own, expected)
  names[#names + 1] = name
  if expected or own then
    set[#set + 1], set[#set + 2] = name, expected and with_mark(own) or own
  else
    unset[#unset + 1] = name
  end
end

for a = 7, limits.keyed and #ARGV or 0 do
  if ARGV[6] == '' and not given[ARGV[a] ] then
    local own, expected = cut_mark(redis.call('HGET', KEY_FLOWS, ARGV[a]))
    if not expected then mark(ARGV[a], own, true) end
  end
  given[ARGV[a] ] = true
end
if limits.keyed and ARGV[6] ~= '' then
  local run, of, at = run_id(), string.match(ARGV[6], '^(%x*):(%d+)$')
  if of ~= run then at = '0' end
  local step = redis.call('HSCAN', KEY_FLOWS, at, 'COUNT', MAX_SCANNED_IDS)
  for i = 1, #step[2], 2 do
    local own, expected = cut_mark(step[2][i + 1])
    if expected and not given[step[2][i] ] then mark(step[2][i], own, false) end
  end
  if step[1] ~= '0' then cursor = run .. ':' .. step[1] end
end
if format then record_request(ARGV[1], ARGV[2], now, cursor) end
local to = tonumber(ARGV[5])
if order and to > arrival then redis.call('HSET', META, 'flow_arrival_us', ARGV[5]) end
if order and to > fence then redis.call('HSET', META, 'flow_fence_us', ARGV[5]) end
if order then last = math.max(last, to) end
write('HSET', KEY_FLOWS, set)
write('HDEL', KEY_FLOWS, unset)
local places, any = new_places(limits), false
for _, k in ipairs(read_waiting(limits, names)) do
  if k.place then
    places.set(k)
    any = any or rests_until(k) ~= FULL
  end
end
places.write()
if any then wake_for_keys(now) end
--@end
return { last, cursor }
