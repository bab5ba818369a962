-- What messages take to become far; see _far.lua.
local function new_bucket(bound)
  local name = string.format('%.0f', bound)
  local old = buckets[name]
  local b = { base = bound, bound = bound, text = '\n', count = 0, noted = old and old.noted or 0,
    full = false, number = '#' .. name, changed = true }
  buckets[name] = b
  return b
end

-- cuts_of gives the due times at which lines are parted: in the middle, or in more parts where there are many. Where
-- newest, the first one that was added, is among the last, due times rise, so the lower part will not grow any more and is
-- left nearly full. The lowest due time is no cut, so none are given when all lines share one.
local function cuts_of(dues, length, newest)
  local sorted = { unpack(dues) }
  table.sort(sorted)
  local n, cuts = #sorted, {}
  local parts = math.ceil(length / (FAR_BYTES * 0.75))
  local late = math.max(1, math.floor(n * 7 / 8))
  if parts == 2 and newest >= sorted[late] then
    cuts[1] = sorted[late]
  else
    for k = 1, parts - 1 do
      local cut = sorted[math.floor(n * k / parts) + 1]
      if cut > (cuts[#cuts] or sorted[1]) then cuts[#cuts + 1] = cut end
    end
  end
  if not cuts[1] or cuts[1] == sorted[1] then
    cuts = {}
    for _, due in ipairs(sorted) do
      if due > sorted[1] then return { due } end
    end
  end
  return cuts
end

-- split parts a bucket that has become too long. Lines of one due time cannot be parted: those that do not fit are put
-- into spilled, as ZADD takes them.
local function split(name, newest, spilled)
  local b = buckets[name]
  local dues, ids = {}, {}
  for due, id in each_far(b) do
    dues[#dues + 1] = due
    ids[#ids + 1] = id
  end
  local cuts = cuts_of(dues, #b.text, newest)
  if #cuts == 0 then
    local lines, length = { '\n' }, 1
    for i, id in ipairs(ids) do
      local line = far_line(b, dues[i], id)
      length = length + #line
      if length <= FAR_BYTES then
        lines[#lines + 1] = line
      else
        spilled[#spilled + 1] = dues[i]
        spilled[#spilled + 1] = id
      end
    end
    b.text, b.count, b.full = table.concat(lines), #lines - 1, true
    return
  end
  local bound = b.bound or tonumber(redis.call('ZSCORE', FARS, name) or '') or b.base
  if bound ~= b.base then b.text, b.count, b.changed = '\n', 0, true end
  local parts = { { base = bound, lines = { '\n' } } }
  for k, cut in ipairs(cuts) do parts[k + 1] = { base = cut, lines = { '\n' } } end
  for i, id in ipairs(ids) do
    local due, k = dues[i], 1
    while cuts[k] and due >= cuts[k] do k = k + 1 end
    local lines = parts[k].lines
    lines[#lines + 1] = far_line(parts[k], due, id)
  end
  for _, part in ipairs(parts) do
    local half = new_bucket(part.base)
    half.text, half.count = table.concat(part.lines), #part.lines - 1
    if #half.text > FAR_BYTES then split(string.format('%.0f', part.base), newest, spilled) end
  end
end

-- names_of gives the buckets of due times that lie from low to high; those are known of which there are not many more.
local function names_of(dues, low, high, first)
  local names = {}
  if low == high then
    for i = 1, #dues do names[i] = first end
    return names
  end
  local above = string.format('(%.0f', low)
  if redis.call('ZCOUNT', FARS, above, high) > 2 * #dues then
    for i, due in ipairs(dues) do names[i] = bucket_of(due) or first end
    return names
  end
  local known = redis.call('ZRANGE', FARS, above, high, 'BYSCORE')
  local bounds = {}
  for k, name in ipairs(known) do bounds[k] = tonumber(name) end
  for i, due in ipairs(dues) do
    local from, to = 0, #bounds -- the last one that is not above the due time
    while from < to do
      local middle = math.ceil((from + to) / 2)
      if bounds[middle] <= due then from = middle else to = middle - 1 end
    end
    names[i] = from == 0 and first or known[from]
  end
  return names
end

-- fold puts messages into buckets, and those that do not fit into spilled, as ZADD takes them. It gives the lowest of their
-- due times when that is below all that were far before.
local function fold(dues, ids, spilled)
  local low, high = math.huge, 0
  for _, due in ipairs(dues) do
    if due < low then low = due end
    if due > high then high = due end
  end
  local first, earliest = bucket_of(low), nil
  if not first then
    first, earliest = redis.call('ZRANGE', FARS, 0, 0)[1] or string.format('%.0f', low), low
    local b = bucket(first)
    b.bound, b.changed = low, true
  end
  local names = names_of(dues, low, high, first)
  load_buckets(names)
  local added, newest, order, only = {}, {}, {}, {} -- by bucket: its new line, or all of them; the first one's due time
  for i, name in ipairs(names) do
    local b, due, lines = buckets[name], dues[i], added[name]
    if b.full and not only[name] then only[name] = b.base + (tonumber(string.match(b.text, '^\n([^\t]+)') or '') or 0) end
    if b.full and due == only[name] then
      spilled[#spilled + 1] = due
      spilled[#spilled + 1] = ids[i]
    elseif not lines then
      order[#order + 1] = name
      newest[#order] = due
      added[name] = far_line(b, due, ids[i])
    elseif type(lines) == 'string' then -- most often there is one, which needs no table
      added[name] = { lines, far_line(b, due, ids[i]) }
    else
      lines[#lines + 1] = far_line(b, due, ids[i])
    end
  end
  for i, name in ipairs(order) do
    local b, lines, count = buckets[name], added[name], 1
    if type(lines) == 'table' then lines, count = table.concat(lines), #lines end
    b.text, b.count, b.full, b.changed = b.text .. lines, b.count + count, false, true
    if #b.text > FAR_BYTES then split(name, newest[i], spilled) end
  end
  return earliest
end
