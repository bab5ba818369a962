#!lua flags=allow-oom
--- Compares the number of messages that count against the concurrency of a queue, and of each key, with its leases.
-- ARGV   1 "1" to repair, at most MAX_RECOUNTED keys
-- Reply  {number in META, number in the leases, keys with another number in KEY_STATES}; BUSY if the leases or the
--        states have more than MAX_LEASE_BYTES, which is too much for one call; NEWER
-- Safe   every key was read before the first write.
--@include keys
--@include any_format
--@include clock
--@include lease
--@include slots
local format, leased = unpack(redis.call('HMGET', META, 'format', 'flow_leased'))
if format and format ~= FLOW_FORMAT and format ~= PLAIN_FORMAT and format ~= PREVIOUS_FORMAT then return NEWER end
local heads = read_heads()
if not heads[1] then return { 0, 0, {} } end
read_slots()
local cursor, bytes, held, of_keys, seen = '0', 0, 0, {}, {}
repeat
  local step = redis.call('HSCAN', LEASES, cursor, 'COUNT', 10)
  cursor = step[1]
  for i = 1, #step[2], 2 do
    local lease, text = step[2][i], step[2][i + 1]
    bytes = bytes + #text
    if not seen[lease] and counts(text, heads) then -- HSCAN may return a lease twice
      for _ in each_entry(text) do held = held + 1 end
      if counts_keys(text, heads) then count_keys(text, nil, of_keys) end
    end
    seen[lease] = true
  end
until cursor == '0' or bytes > MAX_LEASE_BYTES
if cursor ~= '0' then return BUSY end

-- wrong_keys returns the keys with another number of messages in their state, nil if there are too many states.
local function wrong_keys()
  local wrong, checked, size = {}, {}, 0
  repeat
    local step = redis.call('HSCAN', KEY_STATES, cursor, 'COUNT', 100)
    cursor = step[1]
    for i = 1, #step[2], 2 do
      local key, text = step[2][i], step[2][i + 1]
      size = size + #key + #text
      local number = tonumber(string.match(text, '^%d+') or '') or 0
      if not checked[key] and number ~= (of_keys[key] or 0) then wrong[#wrong + 1] = key end
      checked[key] = true
    end
  until cursor == '0' or size > MAX_LEASE_BYTES
  for key in pairs(of_keys) do
    if not checked[key] and cursor == '0' then wrong[#wrong + 1] = key end
  end
  return cursor == '0' and wrong or nil
end

-- repair_keys corrects the states of some keys.
local function repair_keys(names)
  local now, now_us = read_clock()
  local limits = read_limits(now_us)
  local places, any = new_places(limits), false
  for _, k in ipairs(read_waiting(limits, names)) do
    k.leased = of_keys[k.name] or 0
    set_free(k)
    if k.place then
      any = places.set(k) == TURNS or k.full or any
    else
      places.keep(k)
    end
  end
  places.write()
  if any and not redis.call('HGET', META, 'paused') then notify(now, now) end
end

local wrong = heads[2] and wrong_keys() or {}
if cursor ~= '0' then return BUSY end
leased = tonumber(leased or '') or 0
if ARGV[1] == '1' and leased ~= held then
  redis.call('HSET', META, 'flow_leased', math.max(leased, held))
  if leased > held then free_slots(leased - held, (read_clock())) end
end
if ARGV[1] == '1' and wrong[1] then repair_keys({ unpack(wrong, 1, math.min(#wrong, MAX_RECOUNTED)) }) end
return { leased, held, wrong }
