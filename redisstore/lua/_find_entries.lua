--@include lane_entries
-- find_entries returns a function that returns the entry of a sorted message in a lane of a key, given the class in
-- which it would be sorted now, and its due time. It may return nil in a queue with an order or urgency. With an order,
-- at most about a thousand messages of a ms have another place; with urgency, the message may be in another lane.
local function find_entries(order, urgent)
  local read = {} -- entries by id, by lane and due time

  local function find(name, class, due, id)
    local usual = lane_entry(name, class, due * 1000, id)
    if not (order or urgent) or redis.call('ZSCORE', LANES, usual) then return usual end
    if not order then return nil end
    local begin = string.sub(usual, 1, #name + 15)
    local entries = read[begin]
    if not entries then
      entries = {}
      for _, entry in ipairs(redis.call('ZRANGE', LANES, '[' .. begin .. '001', '(' .. begin .. ':', 'BYLEX')) do
        entries[string.sub(entry, #begin + 4)] = entry
      end
      read[begin] = entries
    end
    return entries[id]
  end

  if not urgent then return find end
  return function(name, class, due, id)
    local entry = find(name, class, due, id)
    for other = 1, 3 do
      if not entry and other ~= class then entry = find(name, other, due, id) end
    end
    return entry
  end
end
