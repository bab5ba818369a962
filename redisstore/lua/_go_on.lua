--@include flow_change
-- The steps of a change of a queue's limits; see _flow_change.lua.

-- read_flow_change reads the keys that the functions of _flow_change.lua and below use.
local function read_flow_change()
  redis.call('ZCARD', DUE)
  read_sets(true)
end

-- place_rests looks at up to MAX_PLACED keys that rested under the former limits, and reports whether more are left.
local function place_rests(now_us)
  local names = redis.call('ZRANGE', OLD_RESTS, 0, MAX_PLACED - 1)
  if not names[1] then return false end
  local limits = read_limits(now_us)
  local places = new_places(limits)
  for _, k in ipairs(read_keys(limits, names, OLD_RESTS)) do places.set(k) end
  places.write()
  return #names == MAX_PLACED
end

-- end_rates removes the times of the next starts of some keys, and reports whether more are left. Keys with a rate of
-- their own keep it.
local function end_rates(cursor)
  local step = redis.call('HSCAN', KEY_STATES, cursor, 'COUNT', MAX_PLACED)
  local states, keys, set = step[2], {}, {}
  for i = 1, #states, 2 do keys[#keys + 1] = states[i] end
  for i, limits in ipairs(keys[1] and redis.call('HMGET', KEY_FLOWS, unpack(keys)) or {}) do
    local leased, us, pass = string.match(states[2 * i], '^(%d+)\t(%d+)\t%d+\t%d+\t(.*)$')
    if leased and us ~= '0' and not string.find(limits or '', '^%d*\t%d') then
      set[#set + 1], set[#set + 2] = keys[i], leased .. '\t0\t0\t0\t' .. pass
    end
  end
  write('HSET', KEY_STATES, set)
  if step[1] ~= '0' then
    redis.call('HSET', META, 'flow_end_rates', step[1])
    return true
  end
  redis.call('HDEL', META, 'flow_end_rates')
  return false
end

-- go_on does a step of an unfinished change, and reports whether more is left.
local function go_on(now_us)
  local unsorting, ending, unholding = unpack(redis.call('HMGET', META, 'flow_unsorting', 'flow_end_rates',
    'flow_unholding'))
  if unsorting then return unsort() end
  local more = place_rests(now_us)
  if ending then more = end_rates(ending) or more end
  local limits = read_limits(now_us)
  if unholding then more = unhold(limits) or more end
  if limits.reordering then more = reorder(limits) or more end
  return more
end
