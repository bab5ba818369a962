--@include flow_change
--@include overrides
-- Keys depart with what the queue knows of them; see depart.lua.

-- departing_holds returns the holds of some messages that depart: the id of the message, its key, and the letter w, or
-- d of a dead one.
local function departing_holds(limits, ids)
  local _, names = holds_of(ids)
  local departs, holds = {}, {}
  for _, id in ipairs(ids) do departs[id] = true end
  for _, k in ipairs(read_keys(limits, names)) do
    if k.holder and departs[k.holder] then
      for _, part in ipairs({ k.holder, k.name, k.letter == 'd' and 'd' or 'w' }) do holds[#holds + 1] = part end
    end
  end
  return holds
end

-- take_keys takes out some keys, and returns for each one that departs: its name, the time of the next start in us and
-- in n-th parts of a us, n, and its own limits or ''. It adds the other ones to a list.
local function take_keys(limits, names, busy)
  local taken, gone = {}, {}
  if not names[1] or not limits.keyed then return taken end
  for _, name in ipairs(names) do
    if first_entry(name) then drop_stale(name, MAX_STALE) end
  end
  local overrides, places = redis.call('HMGET', KEY_FLOWS, unpack(names)), new_places(limits)
  for i, k in ipairs(read_waiting(limits, names)) do
    if k.leased > 0 or k.holder or k.former_letter == 'r' or first_entry(k.name) then
      busy[#busy + 1] = k.name
    else
      local ahead = k.n and k.us > k.now_us
      for _, part in ipairs({ k.name, ahead and k.us or 0, ahead and k.rem or 0, ahead and k.n or 0,
        cut_mark(overrides[i]) or '' }) do
        taken[#taken + 1] = part
      end
      gone[#gone + 1] = k.name
      k.n = nil
      places.leave(k)
    end
  end
  places.write()
  write('HDEL', KEY_FLOWS, gone)
  write('ZREM', FORGET, gone)
  return taken
end
