--@include count_at
-- new_count_reader returns an object that reads the counts of packed messages that are due before some times: blocks of
-- BUCKET_COUNTS, and the buckets that such a time divides. reply is the width of the widest buckets, and the names and
-- texts of all blocks and buckets that were read. The caller of the script adds them up (packed_counts.go), because
-- that would take most of the server's time. work is about how many µs it has spent.
local function new_count_reader()
  local reader, floor, char = { reply = { BUCKET_WIDEST_MS }, work = 0 }, math.floor, string.char
  local texts, bucket_widths, seen = {}, {}, {}
  for level = 1, COUNT_LEVELS do texts[level] = {} end -- by block; false for none
  for class = 0, BUCKET_CLASSES - 1 do bucket_widths[class] = math.max(1, BUCKET_WIDEST_MS / 4 ^ class) end

  local function load(key, names)
    if not names[1] then return {} end
    local read, reply = redis.call('HMGET', key, unpack(names)), reader.reply
    reader.work = reader.work + 3 + #names
    for i = 1, #names do
      if read[i] then
        reply[#reply + 1], reply[#reply + 2] = names[i], read[i]
        reader.work = reader.work + 1
      end
    end
    return read
  end

  -- load_blocks reads the blocks, of some of a level in increasing order, that were not read yet.
  local function load_blocks(level, blocks)
    local of, names, new = texts[level], {}, {}
    for i = 1, #blocks do
      local block = blocks[i]
      if of[block] == nil and block ~= new[#new] then
        new[#new + 1] = block
        names[#names + 1] = char(64 + level) .. block
      end
    end
    local read = load(BUCKET_COUNTS, names)
    for i = 1, #new do of[new[i]] = read[i] and readable_counts(read[i]) and read[i] end
  end

  -- read reads the blocks and buckets for some times, in increasing order. At each level it looks at the cells that the
  -- times are in, and goes on with the times in cells with messages: a block of the next level is as long as such a
  -- cell.
  function reader.read(times)
    if not times[1] then return end
    local names, blocks = {}, {}
    local function add_bucket(class, time)
      if class >= BUCKET_CLASSES then return end
      local name = char(97 + class) .. floor(time / bucket_widths[class])
      if seen[name] then return end
      seen[name] = true
      names[#names + 1] = name
    end

    local width = BUCKET_WIDEST_MS * 64 ^ 3 -- of a block
    for i = 0, floor(times[#times] / width) do blocks[i + 1] = i end
    for level = 1, COUNT_LEVELS do
      load_blocks(level, blocks)
      local of, first_class, cells_before = texts[level], 3 * level - 11, level > 3 and 20 or 0
      local still = {}
      blocks = {}
      for i = 1, #times do
        local time = times[i]
        local offset = time % width / width
        local text = of[(time - time % width) / width]
        if text then
          if level > 3 then
            if count_at(text, floor(4 * offset)) > 0 then add_bucket(first_class, time) end
            if count_at(text, 4 + floor(16 * offset)) > 0 then add_bucket(first_class + 1, time) end
          end
          if count_at(text, cells_before + floor(64 * offset)) > 0 then
            if level > 2 then add_bucket(first_class + 2, time) end
            still[#still + 1] = time
            blocks[#blocks + 1] = floor(64 * time / width)
          end
        end
      end
      reader.work = reader.work + #times
      times, width = still, width / 64
    end
    for i = 1, #times do -- in cells of the last level, now width long; its buckets are a millisecond wide
      for class = 3 * COUNT_LEVELS - 8, BUCKET_CLASSES - 1 do
        for start = times[i] - times[i] % width, times[i] - 1 do add_bucket(class, start) end
      end
    end
    load(BUCKETS, names)
  end

  return reader
end
