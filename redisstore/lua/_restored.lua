--@include pack
--@include groups
-- new_restored returns the messages that a script adds as another queue had them, at first none. first is the earliest
-- due time of the ones that are due, nil for none.
local function new_restored(buckets, changes, now)
  local restored = { first = nil }
  local live, due, dead, grouped = {}, {}, {}, {}
  local pack_dues, pack_ids, pack_at = {}, {}, {} -- pack_at: positions of their values in live

  -- add adds a message: its due time and its time of death, "" for none, in ms; and the fields of its record. recorded
  -- is the record that the queue has of its id, or false. sort is nil, or takes the value of a message that is not dead
  -- and reports whether the script sorts it.
  function restored.add(id, value, at, died, attempts, delivered, rest, recorded, sort)
    local packable = died == '' and at - now > PACK_AFTER_MS and #value <= PACK_MAX_ENVELOPE
    local group = group_of(value)
    if group then grouped[#grouped + 1], grouped[#grouped + 2] = group, id end
    -- An unreadable message may start with the same byte as the prefix of a packed one, so it gets a prefix too.
    if string.byte(value) == 128 then packable, value = false, buckets.prefix(0, 0) .. value end
    live[#live + 1], live[#live + 2] = id, value
    if died ~= '' then
      dead[#dead + 1], dead[#dead + 2] = died, id
    elseif sort and sort(value) then -- it is in no list
    elseif packable then
      pack_at[#pack_at + 1] = #live
      pack_dues[#pack_at], pack_ids[#pack_at] = tonumber(at), id
    else
      restored.first = math.min(restored.first or math.huge, tonumber(at))
      due[#due + 1], due[#due + 2] = at, id
    end
    if recorded or died ~= '' or attempts ~= '0' or delivered ~= '0' or rest ~= '' then
      local epoch, _, _, refcount = parse_record(recorded)
      changes.set(id, format_record(epoch, attempts, delivered, refcount, rest))
    end
  end

  -- pack packs messages that are due far ahead, and reports whether there are any messages.
  function restored.pack()
    restored.first = pack(buckets, pack_dues, pack_ids, pack_at, live, due, restored.first)
    if grouped[1] then redis.call('ZCARD', GROUPS) end
    return live[1] ~= nil
  end

  function restored.write()
    buckets.write()
    write('HSET', MESSAGES, live)
    write('ZADD', DUE, due)
    write('ZADD', DEAD, dead)
    write('ZADD', GROUPS, grouped)
    changes.write()
  end

  return restored
end
