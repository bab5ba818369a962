#!lua flags=allow-oom
--- Sets or removes the limits of a queue, and with them the format of the queue.
-- ARGV   1 session, 2 request number
--        3 "1" if the queue's name is registered and the queue may be created
--        4 concurrency, 5 starts in a period, 6 the period in us, 7 burst, each "0" for none
--        8 to 11 the same of the former flow that is the condition; missing without one
-- Reply  1, UNREGISTERED, NEWER; CONFLICT if the condition is not met
-- Safe   SESSIONS is written first; META, WAKE, DUE and BUCKET_STARTS were read before.
--@include keys
--@include any_format
--@include clock
--@include session
--@include condition
--@include slots
--@include write
local format, concurrency, n, per, burst, paused, packed = unpack(redis.call('HMGET', META, 'format',
  'flow_concurrency', 'flow_n', 'flow_per_us', 'flow_burst', 'paused', 'packed_messages'))
if not writes(format) then return NEWER end
local previous = previous_reply(ARGV[1], ARGV[2])
if previous then return previous == UNMET and CONFLICT or 1 end
local now, now_us = read_clock()
if ARGV[8] then
  for i, value in ipairs({ concurrency or '0', n or '0', per or '0', burst or '0' }) do
    if value ~= ARGV[7 + i] then return refuse(ARGV[1], ARGV[2], now, format) end
  end
end
if not format and ARGV[3] ~= '1' then return UNREGISTERED end
read_slots()
local limits = read_limits(now_us)
record_request(ARGV[1], ARGV[2], now)

local unset = {}
local function set(field, value)
  if value == '0' then
    unset[#unset + 1] = field
  else
    redis.call('HSET', META, field, value)
  end
end
local limited = ARGV[4] ~= '0' or ARGV[5] ~= '0'
if not limited then
  redis.call('HSET', META, 'format', PLAIN_FORMAT)
  unset = { 'flow_since', 'flow_leased' }
elseif format ~= FLOW_FORMAT then
  redis.call('HSET', META, 'format', FLOW_FORMAT, 'flow_leased', 0,
    'flow_since', string.format('%.0f-', now_us) .. ARGV[2]) -- unique, also while the clock stands still
end
for i, field in ipairs({ 'flow_concurrency', 'flow_n', 'flow_per_us', 'flow_burst' }) do set(field, ARGV[3 + i]) end
if not limits.n or ARGV[5] == '0' then -- a new rate begins with a full burst
  for _, field in ipairs({ 'flow_next_us', 'flow_rem' }) do unset[#unset + 1] = field end
elseif n ~= ARGV[5] or per ~= ARGV[6] or burst ~= ARGV[7] then
  local us, rem = limits.rem > 0 and limits.us + 1 or limits.us, 0
  local most, most_rem = after({ n = tonumber(ARGV[5]), per = tonumber(ARGV[6]) }, now_us, 0, tonumber(ARGV[7]))
  if us > most then us, rem = most, most_rem end
  redis.call('HSET', META, 'flow_next_us', us, 'flow_rem', rem)
end
write('HDEL', META, unset)
local at = not paused and first_ready(packed)
if at then notify(at, now) end
return 1
