--@include lanes
-- sort_messages puts messages into the lanes of their keys, given their ids, keys, classes and places. The key of a
-- message that is missing is false. A message that holds its key is ready instead; a message that holds another key,
-- because its bytes were damaged or are of a newer version, holds it no more. sort_messages returns when the first key
-- may go, in ms, of the keys that began to wait or have a ready holder now; nil for none.
local function sort_messages(limits, places, ids, keys, classes, us)
  local scores, entries, names, known, ready, left = {}, {}, {}, {}, {}, {} -- ready, left: holders by key
  local added = {} -- classes of entries by key
  local held = limits.order and redis.call('HLEN', HOLDERS) > 0 and redis.call('HMGET', HOLDERS, unpack(ids))
  local place, score, digits

  local function add_name(name)
    if not known[name] then names[#names + 1], added[name] = name, {} end
    known[name] = true
  end

  for i, id in ipairs(ids) do
    local name, class = keys[i] or held and held[i] or '', classes[i]
    if us[i] ~= place then
      place = us[i]
      score, digits = string.format('%.0f', math.floor(place / 1000) + SORTED), string.format('%017.0f', place)
    end
    scores[2 * i - 1], scores[2 * i] = score, id
    add_name(name)
    if held and held[i] == name then
      ready[name] = { id = id, class = class, entry = name .. lane_mark(class) .. digits .. id }
    else
      entries[#entries + 1], entries[#entries + 2] = '0', name .. lane_mark(class) .. digits .. id
      added[name][class] = true
      if held and held[i] then
        left[held[i] ] = id
        add_name(held[i])
      end
    end
  end
  write('ZADD', DUE, scores)
  write('ZADD', LANES, entries)
  local waiting, rests, passes = places_of(names, limits.urgent)

  -- joins reports whether a key may begin to wait in a class.
  local function joins(name)
    if not waiting[name] then return true end
    for class in pairs(limits.urgent and added[name] or {}) do
      if waiting[name] ~= TURNS or not passes[name][class] then return true end -- the state has the passes of others
    end
    return false
  end

  local changed, first = {}, nil
  for _, name in ipairs(names) do
    if joins(name) or ready[name] or left[name] then changed[#changed + 1] = name end
  end
  for _, k in ipairs(read_waiting(limits, changed, waiting, rests, passes)) do
    local holder, moves = ready[k.name], left[k.name] or not k.place
    if holder and k.holder == holder.id then
      places.hold(k, 'r', holder.id)
      moves = true
    elseif holder then -- the hold does not count
      redis.call('ZADD', LANES, 0, holder.entry)
      added[k.name][holder.class], holder, moves = true, nil, true
    end
    if k.holder and left[k.name] == k.holder then places.unhold(k) end
    local waits = true
    if left[k.name] or limits.urgent and (k.ordered or limits.reordering) then
      waits = wait_in_lanes(limits, k, holder and holder.class)
    else
      for class in pairs(added[k.name]) do
        if not k.passes[class] then
          join(limits, k, class)
          moves = true
        end
      end
      if not next(k.passes) then join(limits, k, 1) end -- for its holder
    end
    if not waits then
      places.leave(k)
    elseif moves or k.ordered or limits.reordering then
      places.set(k)
      local at = rests_until(k) or math.floor(limits.now_us / 1000)
      if at < FULL then first = math.min(first or at, at) end
    end
  end
  return first
end
