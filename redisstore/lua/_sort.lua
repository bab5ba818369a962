--@include lanes
-- sort_messages puts messages into the lanes of their keys, given their ids, keys and places. The key of a message that
-- is missing is false. A message that holds its key is ready instead; a message that holds another key, because its
-- bytes were damaged or are of a newer version, holds it no more. sort_messages returns when the first key may go, in
-- ms, of the keys that began to wait or have a ready holder now; nil for none.
local function sort_messages(limits, places, ids, keys, us)
  local scores, entries, names, known, ready, left = {}, {}, {}, {}, {}, {} -- ready, left: holders by key
  local held = limits.order and redis.call('HLEN', HOLDERS) > 0 and redis.call('HMGET', HOLDERS, unpack(ids))
  local place, score, digits

  local function add_name(name)
    if not known[name] then names[#names + 1] = name end
    known[name] = true
  end

  for i, id in ipairs(ids) do
    local name = keys[i] or held and held[i] or ''
    if us[i] ~= place then
      place = us[i]
      score, digits = string.format('%.0f', math.floor(place / 1000) + SORTED), string.format('%017.0f', place)
    end
    scores[2 * i - 1], scores[2 * i] = score, id
    if held and held[i] == name then
      ready[name] = { id = id, entry = name .. '\0' .. digits .. id }
    else
      entries[#entries + 1] = '0'
      entries[#entries + 1] = name .. '\0' .. digits .. id
      if held and held[i] then
        left[held[i] ] = id
        add_name(held[i])
      end
    end
    add_name(name)
  end
  write('ZADD', DUE, scores)
  write('ZADD', LANES, entries)
  local waiting, passes = places_of(names)
  local changed, first = {}, nil
  for _, name in ipairs(names) do
    if not waiting[name] or ready[name] or left[name] then changed[#changed + 1] = name end
  end
  for _, k in ipairs(read_keys(limits, changed)) do
    local set, holder = waiting[k.name], ready[k.name]
    if not set then
      k.pass = limits.pass + JOIN / k.weight
    elseif set == TURNS then
      k.pass = passes[k.name]
    end
    if holder and k.holder == holder.id then
      places.hold(k, 'r', holder.id)
    elseif holder then -- the hold does not count
      redis.call('ZADD', LANES, 0, holder.entry)
    end
    if k.holder and left[k.name] == k.holder then places.unhold(k) end
    places.set(k, set)
    local at = rests_until(k) or math.floor(limits.now_us / 1000)
    if at < FULL then first = math.min(first or at, at) end
  end
  return first
end
