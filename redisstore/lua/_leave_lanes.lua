--@include find_entries
--@include holds
--@include key_of
-- Scripts that change one sorted message after another take them out of their lanes; see _lanes.lua. Claims would drop
-- their entries too, but only when the key has a turn: those of a key that is full, or rests, would pile up.

-- leave_lanes returns messages that leave their lanes, or are removed and give up their keys, at first none.
local function leave_lanes()
  local leaving, ids, left, gone = {}, {}, {}, {} -- left and gone: sets of ids
  local lanes = { places = {} } -- by id, as text, if the queue has places other than due times

  local function add(id, set)
    if not ids[1] then read_slots() end
    if not (left[id] or gone[id]) then ids[#ids + 1] = id end
    set[id] = true
  end

  -- add adds a message with a score in DUE and a value, if it is sorted.
  function lanes.add(id, score, value)
    if not value or not score or tonumber(score) < SORTED then return end
    add(id, left)
    local name, class = key_of(value)
    leaving[#leaving + 1] = { id = id, name = name, class = class, due = score - SORTED }
  end

  -- gone adds a message that is removed and not leased, whether or not it is sorted.
  function lanes.gone(id)
    add(id, gone)
  end

  -- write removes the entries, and ends the holds of removed messages. A message that remains keeps its hold. Keys
  -- without any other message do not wait any more. It is the last step of a script, and returns the keys that are
  -- halted no more.
  function lanes.write(now)
    local _, now_us = read_clock()
    local limits = ids[1] and read_limits(now_us)
    if not limits or not limits.keyed then return {} end
    local entries = {}
    local by_place = redis.call('HEXISTS', META, 'flow_arrival_us') == 1
    local entry_of = find_entries(by_place, limits.urgent)
    local held, names, known = holds_of(ids)
    local lefts = {} -- names
    for _, m in ipairs(leaving) do
      local class = sorted_as(m.class, limits.urgent)
      local entry = not held[m.id] and entry_of(m.name, class, m.due, m.id)
      if entry then
        entries[#entries + 1] = entry
        if by_place then lanes.places[m.id] = string.sub(entry, #m.name + 2, #m.name + 18) end
      end
      if not known[m.name] then names[#names + 1] = m.name end
      known[m.name], lefts[m.name] = true, true
    end
    write('ZREM', LANES, entries)
    if not names[1] then return {} end
    local any, resumed = change_holds(limits, names, function(k)
      if gone[k.holder or ''] then return nil end
      return k.letter == 'r' and left[k.holder] and 'w' or k.letter
    end, lefts)
    if any then wake_for_keys(now) end
    return resumed
  end

  return lanes
end
