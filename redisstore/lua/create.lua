#!lua flags=allow-oom
--- Creates an empty queue, unless a queue or a sign has the name.
-- KEYS   1 META of the name
-- ARGV   1 "1" to pause it, 2 maximum age of dead messages in ms or 0, 3 maximum number of them or 0; 4 to 15 the flow,
--        as set_flow.lua takes it
-- Reply  1
-- Safe   META was read before it is written.
--@include clock
--@include after
--@include flow_fields
local META = KEYS[1]
local format = redis.call('HGET', META, 'format')
if format then
  redis.call('HSET', META, 'format', format) -- see safely.go
  return 1
end
local limited = ARGV[4] ~= '0' or ARGV[5] ~= '0' or ARGV[8] == '1'
local fields = { 'format', limited and FLOW_FORMAT or PLAIN_FORMAT }

local function set(field, value)
  fields[#fields + 1], fields[#fields + 2] = field, value
end

for i, field in ipairs({ 'paused', 'dead_max_age_ms', 'dead_max_count' }) do
  if ARGV[i] ~= '0' then set(field, ARGV[i]) end
end
if limited then
  local _, now_us = read_clock()
  local since = string.format('%.0f-create', now_us)
  set('flow_leased', 0)
  set('flow_since', since)
  for i, field in ipairs(flow_fields()) do
    if ARGV[3 + i] ~= '0' then set(field, field == 'flow_keyed' and since or ARGV[3 + i]) end
  end
  if ARGV[5] ~= '0' then -- the burst is used up
    local us, rem = after({ n = tonumber(ARGV[5]), per = tonumber(ARGV[6]) }, now_us, 0, tonumber(ARGV[7]))
    set('flow_next_us', string.format('%.0f', us))
    set('flow_rem', rem)
  end
end
redis.call('HSET', META, unpack(fields))
return 1
