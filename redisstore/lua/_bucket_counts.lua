--@include write
--@include count_at
-- BUCKET_COUNTS counts packed messages by due time. A field is a block: a period, divided into cells. A block of level
-- 1 is 2^38 ms long and has 64 cells, each as long as a block of level 2, and so on. Blocks of levels 1 to 3 count the
-- messages of all buckets that lie in each cell; the cells of level 3 are as wide as buckets of class 0. A block of
-- level 4 has 84 cells: 4 for the buckets of class 1, 16 for class 2, and 64 for class 3 and further ones. Levels 5 and
-- 6 do the same for classes 4 and 7 and the next ones. So a bucket that is narrower than a cell has its own count in a
-- further block, and fine blocks exist only where messages are dense.
--
-- A block's name is the letter of its level and its number on the grid of such blocks. Its text is a byte, which is the
-- width of a count in bytes, and the counts up to the last non-zero one. A block without messages has no field.
--
-- open_bucket_counts returns the counts as a script sees them; none is read yet.
local function open_bucket_counts()
  local counts = {
    widths = {},                           -- of a block, by level, in ms
    cells_before = { 0, 0, 0, 20, 20, 20 }, -- by level: number of cells before the last 64
    texts = {},                            -- by level and block: the texts that were read
  }
  local fields, added = {}, {}             -- by level and block: the name, and the additions by cell (from 0)
  local names, levels, blocks, n = {}, {}, {}, 0 -- the blocks that the next load reads
  local letters, byte, sub, char = {}, string.byte, string.sub, string.char
  for level = 1, COUNT_LEVELS do
    counts.widths[level], letters[level] = BUCKET_WIDEST_MS * 64 ^ (4 - level), string.char(64 + level)
    counts.texts[level], fields[level], added[level] = {}, {}, {}
  end

  -- want makes the next load read a block.
  function counts.want(level, block)
    local of = fields[level]
    if of[block] then return end
    local name = string.format('%s%d', letters[level], block)
    of[block], n = name, n + 1
    names[n], levels[n], blocks[n] = name, level, block
  end

  -- load reads the wanted blocks. It takes unreadable ones, which a check repairs, as empty.
  function counts.load()
    if n == 0 then return end
    local read, texts, readable = redis.call('HMGET', BUCKET_COUNTS, unpack(names)), counts.texts, readable_counts
    for i = 1, n do
      local text = read[i]
      texts[levels[i]][blocks[i]] = text and readable(text) and text or '\1'
    end
    names, levels, blocks, n = {}, {}, {}, 0
  end

  -- decode returns the counts in a text, the first one at 1.
  function counts.decode(text)
    local width = string.byte(text)
    if width == 1 then return { string.byte(text, 2, -1) } end
    local n = math.floor((#text - 1) / width)
    local list = { struct.unpack('>' .. string.rep('I' .. width, n), text, 2) }
    list[n + 1] = nil -- the position after the last one
    return list
  end

  -- encode returns the text of some counts, which must not end with 0, or nil if there are none.
  function counts.encode(list)
    if not list[1] then return nil end
    local most = math.max(unpack(list))
    if most < 256 then return '\1' .. string.char(unpack(list)) end
    local width = most < 65536 and 2 or most < 16777216 and 3 or 4
    return string.char(width) .. struct.pack('>' .. string.rep('I' .. width, #list), unpack(list))
  end

  -- cell returns the level, block and cell that count a bucket most finely, given its class and start.
  function counts.cell(class, start)
    local level = class > 6 and 6 or 3 + (class + 2 - (class + 2) % 3) / 3
    local block = start / counts.widths[level]
    local offset = 64 * (block % 1)
    block = block - block % 1
    if level > 3 then
      local first_class = 3 * level - 11
      if class == first_class then return level, block, offset / 16 end
      if class == first_class + 1 then return level, block, 4 + offset / 4 end
    end
    return level, block, counts.cells_before[level] + offset - offset % 1
  end

  local function add_to(level, block, cell, n)
    local cells = added[level][block]
    if cells then
      cells[cell] = (cells[cell] or 0) + n
    else
      added[level][block] = { [cell] = n }
    end
  end

  -- add adds to the counts of a bucket, given its class and start.
  function counts.add(class, start, n)
    local level, block, cell = counts.cell(class, start)
    add_to(level, block, cell, n)
  end

  -- add_in_place adds to one count in a text. It returns false if the sum needs more bytes.
  local function add_in_place(text, cell, n)
    local width = byte(text)
    local sum, at = count_at(text, cell) + n, 2 + cell * width
    if sum < 0 then sum = 0 end
    if sum > 255 and (width == 1 or sum >= 256 ^ width) then return false end
    local bytes = width == 1 and char(sum) or struct.pack('>I' .. width, sum)
    if at > #text then return text .. string.rep('\0', at - 1 - #text) .. bytes end
    return sub(text, 1, at - 1) .. bytes .. sub(text, at + width)
  end

  -- changed returns the text of a block after adding to some cells, or nil if all counts are 0 now.
  local function changed(text, cells)
    local result, few, fewer = text, 4, false
    for cell, n in pairs(cells) do
      few, fewer = few - 1, fewer or n < 0
      result = few >= 0 and add_in_place(result, cell, n)
      if not result then break end
    end
    if result then return (not fewer or string.find(result, '[^%z]', 2)) and result end
    local list = counts.decode(text)
    for cell, n in pairs(cells) do
      for i = #list + 1, cell do list[i] = 0 end
      list[cell + 1] = math.max(0, (list[cell + 1] or 0) + n)
    end
    while list[#list] == 0 do list[#list] = nil end
    return counts.encode(list)
  end

  -- write writes the changed counts. The type of BUCKET_COUNTS was checked before.
  function counts.write()
    for level = COUNT_LEVELS, 1, -1 do
      local before = counts.cells_before[level - 1]
      for block, cells in pairs(added[level]) do
        counts.want(level, block)
        if level > 1 then
          local sum = 0
          for _, n in pairs(cells) do sum = sum + n end
          add_to(level - 1, (block - block % 64) / 64, before + block % 64, sum)
        end
      end
    end
    counts.load()
    local set, deleted = {}, {}
    for level = 1, COUNT_LEVELS do
      local texts, name = counts.texts[level], fields[level]
      for block, cells in pairs(added[level]) do
        local text = changed(texts[block], cells)
        if text and text ~= texts[block] then
          set[#set + 1], set[#set + 2] = name[block], text
        elseif not text and texts[block] ~= '\1' then
          deleted[#deleted + 1] = name[block]
        end
      end
    end
    write('HSET', BUCKET_COUNTS, set)
    write('HDEL', BUCKET_COUNTS, deleted)
  end

  return counts
end
