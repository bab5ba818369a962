--@include buckets
-- new_packed_counter returns an object with which a script counts the packed messages due before a time; work is about
-- how many µs it has spent.
local function new_packed_counter(buckets)
  local counter, counts = { work = 0 }, buckets.counts
  local sums_of = {} -- by level and block
  for level = 1, COUNT_LEVELS do sums_of[level] = {} end

  -- sums returns a list of sums of a block's counts: at i that of the first i cells.
  local function sums(level, block)
    local list = sums_of[level][block]
    if list then return list end
    counts.want(level, block)
    counts.load()
    local sum = 0
    list = counts.decode(counts.texts[level][block])
    for i = 1, counts.cells_before[level] + 64 do
      sum = sum + (list[i] or 0)
      list[i] = sum
    end
    list[0], list.total = 0, sum
    sums_of[level][block] = list
    counter.work = counter.work + 10
    return list
  end

  -- in_first_blocks returns the sum of the first n blocks of level 1.
  local function in_first_blocks(n)
    local sum = 0
    for block = 0, n - 1 do counts.want(1, block) end
    counts.load()
    for block = 0, n - 1 do sum = sum + sums(1, block).total end
    return sum
  end

  -- divide returns the number of messages in the buckets that end before a time, and the names, all loaded, of the
  -- other ones that may have messages due before it. At each level it adds the counts of the cells before the one that
  -- contains the time, and goes on with the blocks and buckets in that one.
  function counter.divide(time)
    local block, names = math.floor(time / counts.widths[1]), {}
    if time <= 0 or buckets.packed <= 0 then return 0, names end
    local sum = in_first_blocks(block)

    local function add_bucket(class)
      names[#names + 1] = buckets.letters[class] .. math.floor(time / buckets.widths[class])
    end

    for level = 1, COUNT_LEVELS do
      local width, list, first_class = counts.widths[level], sums(level, block), 3 * level - 11
      local offset, before = (time - block * width) / width, counts.cells_before[level]
      if before > 0 then
        local a, b = math.floor(4 * offset), 4 + math.floor(16 * offset)
        sum = sum + list[a] + list[b] - list[4]
        if list[a + 1] > list[a] then add_bucket(first_class) end
        if list[b + 1] > list[b] then add_bucket(first_class + 1) end
      end
      local cell = math.floor(64 * offset)
      sum = sum + list[before + cell] - list[before]
      local in_cell = list[before + cell + 1] - list[before + cell]
      block = 64 * block + cell
      if in_cell == 0 then break end
      if level == COUNT_LEVELS then
        add_bucket(first_class + 2)
        for class = first_class + 3, BUCKET_CLASSES - 1 do
          for start = block * width / 64, time - 1, buckets.widths[class] do
            names[#names + 1] = buckets.letters[class] .. start / buckets.widths[class]
          end
        end
      elseif level >= 3 and in_cell > sums(level + 1, block).total then
        add_bucket(first_class + 2)
      end
    end
    counter.work = counter.work + 10 + 3 * #names
    buckets.load(names)
    return sum, names
  end

  -- before returns the number of packed messages due before a time.
  function counter.before(time)
    local sum, names = counter.divide(time)
    for _, name in ipairs(names) do sum = sum + buckets.count_due(buckets.loaded[name], 0, time) end
    return sum
  end

  -- block_counts returns what the counts of a block should be, given those of the next level.
  function counter.block_counts(level, block)
    local list, names, before = {}, {}, counts.cells_before[level]
    local from, width = block * counts.widths[level], counts.widths[level]
    for i = 1, before + 64 do list[i] = 0 end
    if level < COUNT_LEVELS then
      for i = 0, 63 do counts.want(level + 1, 64 * block + i) end
      counts.load()
      for i = 0, 63 do list[before + i + 1] = sums(level + 1, 64 * block + i).total end
      for class = math.max(0, 3 * level - 11), 3 * level - 9 do
        for i = 0, width / buckets.widths[class] - 1 do
          names[#names + 1] = buckets.letters[class] .. from / buckets.widths[class] + i
        end
      end
    else
      names = redis.call('ZRANGE', BUCKET_STARTS, from, string.format('(%.0f', from + width), 'BYSCORE')
    end
    buckets.load(names)
    for _, name in ipairs(names) do
      local b = buckets.loaded[name]
      local at, _, cell = counts.cell(b.class, b.from)
      if at == level then list[cell + 1] = list[cell + 1] + buckets.line_count(b.text) end
    end
    while list[#list] == 0 do list[#list] = nil end
    return list
  end

  -- total returns the sum of the counts of level 1.
  function counter.total()
    return in_first_blocks(MAX_DUE_MS / counts.widths[1])
  end

  return counter
end
