#!lua flags=allow-oom
--- Sets or removes the limits of a queue, and with them the format of the queue.
-- ARGV   1 session, 2 request number
--        3 "1" if the queue's name is registered and the queue may be created
--        4 concurrency, 5 starts in a period, 6 the period in us, 7 burst, 8 "1" if keys take turns; the limits of each
--        key: 9 concurrency, 10 starts in a period, 11 the period in us, 12 burst, 13 weight, 14 order; 15 "1" for
--        urgency; each "0" for none
--        16 to 27 the same of the former flow that is the condition; missing without one
-- Reply  1; 2 if the change has to be finished by finish_flow.lua; BUSY if an earlier one has to be, and nothing was
--        changed; UNREGISTERED; NEWER; CONFLICT if the condition is not met
-- Safe   SESSIONS is written first; every other key was read before. Keys that are deleted are freed in the
--        background.
--@include keys
--@include any_format
--@include clock
--@include session
--@include condition
--@include slots
--@include go_on
--@include flow_fields
local fields = flow_fields()
local format, paused, packed, unsorting, ending, unholding, reordering = unpack(redis.call('HMGET', META, 'format',
  'paused', 'packed_messages', 'flow_unsorting', 'flow_end_rates', 'flow_unholding', 'flow_reordering'))
if not writes(format) then return NEWER end
local previous = previous_reply(ARGV[1], ARGV[2])
if previous == UNMET then return CONFLICT end
local unfinished = redis.call('ZCARD', OLD_RESTS) > 0 or ending or unholding or reordering
if previous then
  if format then redis.call('HSET', META, 'format', format) end -- see safely.go
  return (unsorting or unfinished) and 2 or 1
end
local now, now_us = read_clock()
local former, limited, changed, keys_changed = redis.call('HMGET', META, unpack(fields)), false, {}, false
local urgent = former[#fields] and '0' -- flow_urgency from now on
if ARGV[15] == '1' then urgent = '1' end
for i, field in ipairs(fields) do
  limited = limited or former[i]
  former[i] = former[i] and (field == 'flow_keyed' and '1' or former[i]) or '0'
  changed[i] = former[i] ~= ARGV[3 + i]
  keys_changed = keys_changed or changed[i] and i > 5 and i < #fields
end
for i = 1, ARGV[16] and #fields or 0 do
  if former[i] ~= ARGV[15 + i] then return refuse(ARGV[1], ARGV[2], now, format) end
end
if not format and ARGV[3] ~= '1' then return UNREGISTERED end
local fair, was_fair = ARGV[8] == '1', former[5] == '1'
if fair and (unsorting or unfinished and keys_changed) then return BUSY end
read_slots()
read_flow_change()
local any_rest, any_sorted = redis.call('ZCARD', RESTS) > 0, redis.call('ZCOUNT', DUE, SORTED, '+inf') > 0
local any_held, any_halted = redis.call('HLEN', HOLDERS) > 0, redis.call('ZCARD', HALTED) > 0
local limits = read_limits(now_us)
record_request(ARGV[1], ARGV[2], now)

local unset, since = {}, string.format('%.0f-', now_us) .. ARGV[2] -- unique, also while the clock stands still
for i, field in ipairs(fields) do
  if field == 'flow_urgency' then
    if fair and urgent then redis.call('HSET', META, field, urgent) end
  elseif ARGV[3 + i] == '0' then
    unset[#unset + 1] = field
  elseif field ~= 'flow_keyed' then
    redis.call('HSET', META, field, ARGV[3 + i])
  elseif not was_fair then
    redis.call('HSET', META, field, since)
  end
end
if not limits.n or ARGV[5] == '0' then -- a new rate begins with a full burst
  for _, field in ipairs({ 'flow_next_us', 'flow_rem' }) do unset[#unset + 1] = field end
elseif changed[2] or changed[3] or changed[4] then
  local us, rem = limits.rem > 0 and limits.us + 1 or limits.us, 0
  local slower = tonumber(ARGV[6]) / tonumber(ARGV[5]) / (limits.per / limits.n) -- starts that were used up stay so
  if us > now_us and slower > 1 then us = now_us + math.ceil((us - now_us) * slower) end
  local most, most_rem = after({ n = tonumber(ARGV[5]), per = tonumber(ARGV[6]) }, now_us, 0, tonumber(ARGV[7]))
  if us > most then us, rem = most, most_rem end
  redis.call('HSET', META, 'flow_next_us', us, 'flow_rem', rem)
end

local limits_left = ARGV[4] ~= '0' or ARGV[5] ~= '0' or fair
if limits_left and not limited then
  redis.call('HSET', META, 'format', FLOW_FORMAT, 'flow_leased', 0, 'flow_since', since)
elseif not limits_left then
  redis.call('HSET', META, 'format', PLAIN_FORMAT)
  if not any_sorted then -- otherwise claims go on to count until the last message is ready
    for _, field in ipairs({ 'flow_since', 'flow_leased' }) do unset[#unset + 1] = field end
  end
end
if not fair then
  for _, field in ipairs({ 'flow_pass', 'flow_claimed_us', 'flow_unsorting', 'flow_end_rates', 'flow_unholding',
    'flow_reordering', 'flow_urgency', 'flow_pass_high', 'flow_pass_low', 'flow_passed_normal', 'flow_passed_low' }) do
    unset[#unset + 1] = field
  end
  redis.call('UNLINK', LANES, KEY_STATES, TURNS, RESTS, OLD_RESTS, FORGET, KEY_FLOWS, HOLDERS, HALTED, TURNS_HIGH,
    TURNS_LOW)
end
write('HDEL', META, unset)
local more = false
if fair and keys_changed and any_rest then
  redis.call('RENAME', RESTS, OLD_RESTS)
  more = place_rests(now_us)
end
if fair and former[7] ~= '0' and ARGV[10] == '0' then more = end_rates('0') or more end
local order = ARGV[14]
if fair and (order == '0' and any_held or order == 'continue' and any_halted) then
  redis.call('HSET', META, 'flow_unholding', 1)
  more = unhold(read_limits(now_us)) or more
end
local begins = ARGV[15] == '1' and changed[#fields] and order ~= '0' -- keys may wait in classes of purged messages
if fair and was_fair and urgent and (begins or (former[11] == '0') ~= (order == '0')) then
  redis.call('HSET', META, 'flow_reordering', '-')
  more = reorder(read_limits(now_us)) or more
end
if not fair and any_sorted then
  redis.call('HSET', META, 'format', FLOW_FORMAT, 'flow_unsorting', 1) -- until the last message is ready
  more = unsort()
end
local at = not paused and next_ready(packed, fair, now, urgent)
if at then notify(at, now) end
return more and 2 or 1
