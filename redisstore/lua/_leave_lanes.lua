--@include lanes
--@include sorted
--@include key_of
--@include write
-- Scripts that change one sorted message after another take them out of their lanes; see _lanes.lua. Claims would drop
-- their entries too, but only when the key has a turn: those of a key that is full, or rests, would pile up.

-- leave_lanes returns the entries of messages in their lanes, at first none.
local function leave_lanes()
  local entries, names, known, lanes = {}, {}, {}, {}
  local entry_of

  -- add adds a message with a score in DUE and a value, if it is sorted.
  function lanes.add(id, score, value)
    if not value or not score or tonumber(score) < SORTED then return end
    if not entry_of then
      read_sets()
      entry_of = find_entries(redis.call('HGET', META, 'flow_key_order'))
    end
    local name = key_of(value)
    entries[#entries + 1] = entry_of(name, score - SORTED, id) -- none if it holds the key
    if not known[name] then names[#names + 1] = name end
    known[name] = true
  end

  -- write removes the entries. Keys without any other do not wait any more.
  function lanes.write(now)
    write('ZREM', LANES, entries)
    local idle, forget = {}, {}
    for _, name in ipairs(names) do
      local from, to = '[' .. name .. '\0', '(' .. name .. '\1'
      if not redis.call('ZRANGE', LANES, from, to, 'BYLEX', 'LIMIT', 0, 1)[1] then
        idle[#idle + 1] = name
        forget[#forget + 1] = now
        forget[#forget + 1] = name
      end
    end
    for _, key in ipairs({ TURNS, RESTS, OLD_RESTS }) do write('ZREM', key, idle) end
    write('ZADD', FORGET, forget)
  end

  return lanes
end
