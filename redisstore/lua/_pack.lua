--@include buckets
-- pack packs messages into buckets. It returns the class of each message's bucket, nil for messages that found no room
-- in about PACK_MAX_BUCKETS buckets, and the lowest due time, if it may be the earliest of all packed messages.
--
-- The counts show about which class has room for a message: the first one with few enough lines in its bucket, while
-- the next one, which takes messages that find no room, has none. It moves on to the next class where its bucket is
-- full. A bucket takes lines up to BUCKET_BYTES, because each later line rewrites it. A new one, which is written once
-- for all lines of this call, takes CHUNK_BYTES. Consecutive messages with the same due time are handled together.
local function pack(buckets, dues, ids)
  local counts, widths, letters = buckets.counts, buckets.widths, buckets.letters
  local due_of, first, last, class_of, n = {}, {}, {}, {}, 0 -- of each group of messages with the same due time
  local format = string.format -- which is quicker than to join a text and a number

  -- lines_of returns how many lines with generated ids a bucket of a class takes, about.
  local function lines_of(class) return BUCKET_BYTES / BUCKET_LINE_BYTES + class end

  -- set_classes sets the first class of each of some groups, and returns the groups that the next level has to decide.
  local function set_classes(groups, level)
    local width, texts, want, blocks, dense = counts.widths[level], counts.texts[level], counts.want, {}, {}
    local at, lists = count_at, texts
    local a, before = 3 * level - 11, counts.cells_before[level]
    local most_a, most_b, most_c = lines_of(a), lines_of(a + 1), lines_of(a + 2)
    for k = 1, #groups do
      local block = due_of[groups[k]] / width
      block = block - block % 1
      blocks[k] = block
      want(level, block)
    end
    if 4 * counts.load() < #groups then
      at, lists = function(list, cell) return list[cell + 1] or 0 end, {}
      for block, text in pairs(texts) do lists[block] = counts.decode(text) end
    end
    for k = 1, #groups do
      local g, block = groups[k], blocks[k]
      local list, offset = lists[block], 64 * (due_of[g] / width - block)
      local second = before > 0 and at(list, 4 + (offset - offset % 4) / 4)
      if texts[block] == '\1' then
        class_of[g] = a > 0 and a - 1 or 0
      elseif second == 0 and at(list, (offset - offset % 16) / 16) < most_a then
        class_of[g] = a
      else
        local last = at(list, before + offset - offset % 1)
        if last == 0 and second and second < most_b then
          class_of[g] = a + 1
        else
          class_of[g] = a + 2
          if last >= most_c then dense[#dense + 1] = g end
        end
      end
    end
    return dense
  end

  local lowest, left = math.huge, {}
  for i, due in ipairs(dues) do
    if due == due_of[n] then
      last[n] = i
    else
      n = n + 1
      due_of[n], first[n], last[n], left[n] = due, i, i, n
      if due < lowest then lowest = due end
    end
  end
  local level = 3
  while left[1] and level <= COUNT_LEVELS do
    left, level = set_classes(left, level), level + 1
  end
  for _, g in ipairs(left) do class_of[g] = class_of[g] + 1 end
  left = {}
  for g = 1, n do
    if class_of[g] < BUCKET_CLASSES then left[#left + 1] = g end
  end

  local starts, first_width = buckets.range(redis.call('ZRANGE', BUCKET_STARTS, 0, 0)[1] or '')
  local classes, loaded, is_new, read, packed = {}, buckets.loaded, buckets.is_new, 0, 0
  while left[1] and read < PACK_MAX_BUCKETS do
    local names, starts_at, over = {}, {}, {}
    for k = 1, #left do
      local g = left[k]
      local class = class_of[g]
      local number = due_of[g] / widths[class]
      number = number - number % 1
      names[k], starts_at[k] = format('%s%d', letters[class], number), number * widths[class]
    end
    read = read + buckets.load(names, starts_at)
    for k = 1, #left do
      local g = left[k]
      local b, i, to = loaded[names[k]], first[g], last[g]
      if not b.full then
        local offset = format('%d\t', due_of[g] - b.from)
        local size, most, extra = #b.text, is_new[names[k]] and CHUNK_BYTES or BUCKET_BYTES, #offset + 1
        while i <= to do
          size = size + extra + #ids[i]
          if size > most then
            b.full = true
            break
          end
          classes[i] = class_of[g]
          i = i + 1
        end
        local added = i - first[g]
        if added == 1 then
          b.text = b.text .. offset .. ids[i - 1] .. '\n'
        elseif added > 1 then
          b.text = b.text .. offset .. table.concat(ids, '\n' .. offset, first[g], i - 1) .. '\n'
        end
        if added > 0 then
          b.added = b.added + added
          packed = packed + added
        end
      end
      if i <= to then
        first[g], class_of[g] = i, class_of[g] + 1
        if class_of[g] < BUCKET_CLASSES then over[#over + 1] = g end
      end
    end
    left = over
  end
  buckets.packed = buckets.packed + packed
  local earliest = packed > 0 and (not starts or lowest < starts + first_width)
  return classes, earliest and lowest or nil
end
