--@include holds
--@include overrides
-- Keys arrive with what another sub-queue has known of them; see _depart_keys.lua.

-- receive_limits sets the limits of keys that differ, given as take_keys returns them, and ends that they are expected.
local function receive_limits(keys)
  local names, set, unset = {}, {}, {}
  for i = 1, #keys, 5 do names[#names + 1] = keys[i] end
  for i, text in ipairs(names[1] and redis.call('HMGET', KEY_FLOWS, unpack(names)) or {}) do
    local own = keys[5 * i] ~= '' and keys[5 * i] or cut_mark(text)
    if own then
      set[#set + 1], set[#set + 2] = names[i], own
    elseif text then
      unset[#unset + 1] = names[i]
    end
  end
  write('HSET', KEY_FLOWS, set)
  write('HDEL', KEY_FLOWS, unset)
end

-- receive_keys sets the limits and the state of keys, and lets messages that have arrived hold their keys, unless
-- other ones do. holds has by key what places.hold takes. Of two times of the next start the later one stays.
local function receive_keys(now, now_us, keys, holds)
  receive_limits(keys)
  local names, starts, limits = {}, {}, read_limits(now_us)
  for i = 1, #keys, 5 do
    names[#names + 1], starts[keys[i] ] = keys[i], { us = keys[i + 1], rem = keys[i + 2], n = keys[i + 3] }
  end
  for name in pairs(holds) do
    if not starts[name] then names[#names + 1] = name end
  end
  local places, any = new_places(limits), false
  for _, k in ipairs(read_waiting(limits, names)) do
    local came, held = starts[k.name], holds[k.name]
    if came and k.n and came.n > 0 then
      if came.n ~= k.n and came.rem > 0 then came.us, came.rem = came.us + 1, 0 end -- parts of another size
      local c = set_limits({ now_us = now_us, leased = 0 }, nil, k.n, k.per, k.burst, came.us, came.rem)
      if c.us > k.us or c.us == k.us and c.rem > k.rem then k.us, k.rem = c.us, c.rem end
    end
    if held and not k.holder and (limits.order == 'halt' or limits.order and held[1] ~= 'd') then
      places.hold(k, unpack(held))
    end
    if k.place then
      places.set(k)
      any = any or rests_until(k) ~= FULL
    else
      places.keep(k)
    end
  end
  places.write()
  if any then wake_for_keys(now) end
end
