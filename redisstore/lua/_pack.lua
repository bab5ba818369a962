--@include buckets
-- sort_by_due sorts lists of messages, at most MaxBatch, by their due times.
local function sort_by_due(dues, ids, at)
  local sorted = true
  for i = 2, #dues do sorted = sorted and dues[i] >= dues[i - 1] end
  if sorted then return end
  local order, ids_before, at_before = {}, {}, {}
  for i = 1, #dues do
    order[i], ids_before[i], at_before[i] = 1024 * dues[i] + i, ids[i], at[i] -- below 2^53
  end
  table.sort(order)
  for k = 1, #order do
    local i = order[k] % 1024
    dues[k], ids[k], at[k] = (order[k] - i) / 1024, ids_before[i], at_before[i]
  end
end

-- pack packs messages into buckets. It sorts dues, ids and at by due time. at has the positions of their envelopes in
-- values, which get the stored form. Messages that found no room in about PACK_MAX_BUCKETS buckets are appended to z, a
-- list of due times and ids. first is the earliest due time so far, or nil; pack returns it with these messages, and
-- with the packed ones if one of them may be the earliest of all packed messages.
--
-- The counts show about which class has room for a message: the first one with few enough lines in its bucket, while
-- the next one, which takes messages that find no room, has none. It moves on to the next class where its bucket is
-- full. A bucket takes lines up to BUCKET_BYTES, because each later line rewrites it. A new one, which is written once
-- for all lines of this call, takes CHUNK_BYTES.
local function pack(buckets, dues, ids, at, values, z, first)
  if not dues[1] then return first end
  local counts, widths = buckets.counts, buckets.widths

  -- split divides the messages from first to last into ranges within one period of a width. It appends the first and
  -- last message of each to a list, and extends the list's last range if it is of the same period.
  local function split(list, first, last, width)
    local n, till = #list, 0
    if list[n] == first - 1 then till = dues[first - 1] - dues[first - 1] % width + width end
    local k, latest = first, dues[last]
    while till <= latest do
      local due = dues[k]
      if due >= till then
        till = due - due % width + width
        if k > first then list[n] = k - 1 end
        n = n + 2
        list[n - 1] = k
      end
      k = k + 1
    end
    list[n] = last
    return list
  end

  -- lines_of returns how many lines with generated ids a bucket of a class takes, about.
  local function lines_of(class) return BUCKET_BYTES / BUCKET_LINE_BYTES + class end

  local function in_list(list, cell) return list[cell + 1] or 0 end

  -- class_at returns the first class for a due time, or nil if the next level has to decide. at(of, cell) is a count of
  -- the block.
  local function class_at(level, due, at, of)
    local width, a, before = counts.widths[level], 3 * level - 11, counts.cells_before[level]
    local offset = 64 * (due % width) / width
    local second = before > 0 and at(of, 4 + (offset - offset % 4) / 4)
    if second == 0 and at(of, (offset - offset % 16) / 16) < lines_of(a) then return a end
    local last = at(of, before + offset - offset % 1)
    if last == 0 and second and second < lines_of(a + 1) then return a + 1 end
    if last < lines_of(a + 2) then return a + 2 end
    return level == COUNT_LEVELS and a + 3 or nil
  end

  local runs = {} -- by class: ranges of messages, each of one bucket
  local function add_run(class, first, last)
    class = math.min(class, BUCKET_CLASSES) -- for messages without a bucket
    runs[class] = split(runs[class] or {}, first, last, widths[class] or 1)
  end

  sort_by_due(dues, ids, at)
  local level, parts = 3, split({}, 1, #dues, counts.widths[3]) -- parts: ranges, each of one block
  while parts[1] do
    local width, blocks, dense = counts.widths[level], {}, {}
    for p = 1, #parts, 2 do
      local due = dues[parts[p]]
      blocks[p] = (due - due % width) / width
      counts.want(level, blocks[p])
    end
    counts.load()
    local cell = width / 64
    for p = 1, #parts, 2 do
      local first, last, at_cell, of = parts[p], parts[p + 1], count_at, counts.texts[level][blocks[p]]
      local till, class = 0, nil
      if of == '\1' then till, class = math.huge, math.max(0, 3 * level - 12) end
      if last - first > 3 then at_cell, of = in_list, counts.decode(of) end
      local function add(to)
        if class then add_run(class, first, to) else split(dense, first, to, cell) end
        first = to + 1
      end
      local k, latest = first, dues[last]
      while till <= latest do
        local due = dues[k]
        if due >= till then
          till = due - due % cell + cell
          local next_class = class_at(level, due, at_cell, of)
          if next_class ~= class and k > first then add(k - 1) end
          class = next_class
        end
        k = k + 1
      end
      add(last)
    end
    level, parts = level + 1, dense
  end

  local start, width = buckets.range(redis.call('ZRANGE', BUCKET_STARTS, 0, 0)[1] or '')
  local format, concat, lines = string.format, table.concat, {}

  -- fill packs messages into a bucket, and returns the first one that finds no room.
  local function fill(b, first, last)
    local size, most, n, k, due = #b.text, b.is_new and CHUNK_BYTES or BUCKET_BYTES, 0, first, dues[first]
    if first == last then -- as most ranges of messages at random times
      local line = format('%d\t', due - b.from) .. ids[first] .. '\n'
      if size + #line > most then return first end
      values[at[first]] = buckets.prefix(due, b.class) .. values[at[first]]
      b.text, b.added = b.text .. line, b.added + 1
      return first + 1
    end
    while k <= last and size <= most do
      local from, offset, prefix = k, format('%d\t', due - b.from), buckets.prefix(due, b.class)
      local extra, next_due = #offset + 1, due
      while next_due == due and k <= last do
        size = size + extra + #ids[k]
        if size > most then break end
        values[at[k]], k = prefix .. values[at[k]], k + 1
        next_due = dues[k]
      end
      due = next_due
      if k > from then
        n = n + 1
        lines[n] = offset .. (k - from > 1 and concat(ids, '\n' .. offset, from, k - 1) or ids[from]) .. '\n'
      end
    end
    if n > 0 then b.text = b.text .. (n > 1 and concat(lines, '', 1, n) or lines[1]) end
    b.added = b.added + k - first
    return k
  end

  local read, packed = 0, #dues
  for class = 0, BUCKET_CLASSES - 1 do
    local list, names, starts, n, is_open = runs[class] or {}, {}, {}, 0, read < PACK_MAX_BUCKETS
    for r = 1, is_open and #list or 0, 2 do
      local due = dues[list[r]]
      n = n + 1
      starts[n] = due - due % widths[class]
      names[n] = format(buckets.formats[class], starts[n] / widths[class])
    end
    if is_open then read = read + buckets.load(names, starts, class) end
    for r = 1, #list, 2 do
      local k, last = list[r], list[r + 1]
      if is_open then k = fill(buckets.loaded[names[(r + 1) / 2]], k, last) end
      if k <= last then add_run(class + 1, k, last) end
    end
  end
  local list = runs[BUCKET_CLASSES] or {}
  for r = 1, #list, 2 do
    packed = packed - 1 - list[r + 1] + list[r]
    for k = list[r], list[r + 1] do z[#z + 1], z[#z + 2] = dues[k], ids[k] end
    first = math.min(first or math.huge, dues[list[r]])
  end
  buckets.packed = buckets.packed + packed
  if packed > 0 and (not start or dues[1] < start + width) then first = math.min(first or math.huge, dues[1]) end
  return first
end
