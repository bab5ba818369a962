-- A claim with room for the ready messages that it sorts lets them start directly: a message whose key does not wait
-- gets an entry in a lane, and its key a turn, only if it is left. The lines of such keys have direct set, and all
-- messages of the keys. They start in the same order as if they had been sorted before, except that messages due before
-- 1970 start by due time.

-- group_by returns groups of items by the key that a function returns for each, and the keys.
local function group_by(items, of)
  local groups, keys = {}, {}
  for _, item in ipairs(items) do
    local key = of(item)
    local group = groups[key]
    if group then
      group[#group + 1] = item
    else
      groups[key], keys[#keys + 1] = { item }, key
    end
  end
  return groups, keys
end

-- in_order returns lines by their passes and then by the bytes of the names of their keys.
local function in_order(lines)
  local sorted = {}

  -- add adds some lines that differ in the part at a position: the pass, and then six bytes of the name at a time.
  local function add(some, at)
    if #some == 1 then
      sorted[#sorted + 1] = some[1]
      return
    end
    local groups, numbers = group_by(some, function(l) return at == 0 and l.pass or digits_of(l.key)[at] or -1 end)
    table.sort(numbers)
    for _, number in ipairs(numbers) do add(groups[number], at + 1) end
  end

  if lines[1] then add(lines, 0) end
  return sorted
end

-- add_direct adds lines of ready messages to the turns of a claim, as far as their keys do not wait. It returns the
-- ids, due times and values of the others.
local function add_direct(limits, turns, ids, dues, values)
  local all = {}
  for i = 1, #ids do all[i] = i end
  local positions, names = group_by(all, function(i) return (key_of(values[i])) end)
  local waiting, idle, lines = places_of(names), {}, {}
  for _, name in ipairs(names) do
    if not waiting[name] then idle[#idle + 1] = name end
  end
  for _, k in ipairs(read_keys(limits, idle)) do
    if k.former then
      waiting[k.name] = true -- as if it waited: it has a hold of an order that has ended
    else
      join(limits, k, 1)
      local l = turns.new_line(turns.begin_key(k), 1, k.passes[1])
      l.direct, l.ended, turns.direct[#turns.direct + 1] = true, true, l
      for n, i in ipairs(positions[k.name]) do
        l.messages[n] = { id = ids[i], due = dues[i], value = values[i], key = k, line = l, pass = 0, at = 0,
          text = false, gone = false }
      end
      turns.in_front = turns.in_front + #l.messages
      lines[#lines + 1] = l
    end
  end
  turns.lists[1].add(in_order(lines))
  local other_ids, other_dues, other_values = {}, {}, {}
  for _, name in ipairs(names) do
    for _, i in ipairs(waiting[name] and positions[name] or {}) do
      local n = #other_ids + 1
      other_ids[n], other_dues[n], other_values[n] = ids[i], dues[i], values[i]
    end
  end
  return other_ids, other_dues, other_values
end

-- sort_direct puts the messages of direct lines that are left into lanes.
local function sort_direct(turns)
  local scores, entries, due, score, digits = {}, {}, nil, nil, nil
  for _, l in ipairs(turns.direct) do
    for _, m in ipairs(l.messages) do
      if not m.gone then
        if m.due ~= due then
          due = m.due
          local place = math.max(due, 0) -- it has digits, no sign
          score, digits = string.format('%.0f', place + SORTED), string.format('%017.0f', place * 1000)
        end
        scores[#scores + 1], scores[#scores + 2] = score, m.id
        entries[#entries + 1], entries[#entries + 2] = '0', l.key.name .. lane_mark(1) .. digits .. m.id
      end
    end
  end
  write('ZADD', DUE, scores)
  write('ZADD', LANES, entries)
end
