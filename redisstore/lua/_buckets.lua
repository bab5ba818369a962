--@include bucket_counts
-- Messages due far ahead are packed into buckets. A bucket is a field of BUCKETS: an empty line, then one line a
-- message in any order, with the due time relative to the start of the bucket in ms, a tab and the id. Buckets lie on
-- grids: class 0 is BUCKET_WIDEST_MS ms wide, each further class a quarter of the one before, at least 1 ms. A bucket's
-- name is a letter for its class and its number on that grid, so it follows from a due time and a class, which a packed
-- message's value in MESSAGES contains. A full bucket takes no more: later messages go to the bucket of the next class,
-- so buckets of several classes overlap. BUCKET_STARTS is an index of the buckets by start time.
--
-- open_buckets returns the buckets as a script sees them; none is read yet. packed is the number of packed messages as
-- META has it, false or nil for none. A script that changes buckets ends with write. All functions are made in one
-- constructor, because most calls need none of them.
local function open_buckets(packed)
  local buckets = {
    packed = tonumber(packed or '') or 0, -- as this script will leave it
    searched = 0,                         -- bytes that find has read, and as many as take as long as its calls
    loaded = {},                          -- by name, as this script will leave them
    counts = open_bucket_counts(),
    widths = {},                          -- by class, in ms
    formats = {},                         -- by class, of a name
  }
  for class = 0, BUCKET_CLASSES - 1 do
    buckets.widths[class] = math.max(1, BUCKET_WIDEST_MS / 4 ^ class)
    buckets.formats[class] = string.char(97 + class) .. '%d'
  end
  local types_checked -- set once the types of BUCKET_STARTS and BUCKET_COUNTS have been checked

  local function bucket_name(class, due)
    return string.format(buckets.formats[class], due / buckets.widths[class])
  end

  -- range returns the start, the width and the class of a bucket, or nil if the name is invalid.
  function buckets.range(name)
    local class, number = (string.byte(name) or 0) - 97, tonumber(string.sub(name, 2))
    local width = buckets.widths[class]
    if not width or not number then return nil end
    return number * width, width, class
  end

  -- load reads each bucket once and returns how many it read. starts and class are those of all names, if known.
  function buckets.load(names, starts, class)
    local fields, loaded, n = {}, buckets.loaded, 0
    for i = 1, #names do
      local name = names[i]
      if not loaded[name] then
        local start, _, in_class = starts and starts[i], nil, class
        if not start then start, _, in_class = buckets.range(name) end
        n = n + 1
        fields[n], loaded[name] = name, { from = start or 0, class = in_class, text = '\n', added = 0 }
      end
    end
    if n == 0 then return 0 end
    if not types_checked then
      redis.call('ZCARD', BUCKET_STARTS)
      redis.call('HLEN', BUCKET_COUNTS)
      types_checked = true
    end
    local texts = redis.call('HMGET', BUCKETS, unpack(fields))
    for i = 1, n do
      local b = loaded[fields[i]]
      if texts[i] then b.text = texts[i] else b.is_new = true end
    end
    return n
  end

  -- get returns a bucket.
  function buckets.get(name)
    buckets.load({ name })
    return buckets.loaded[name]
  end

  -- names_at returns the buckets, one of each class, that may hold a due time, whether or not they exist.
  function buckets.names_at(due)
    local names = {}
    for class = 0, BUCKET_CLASSES - 1 do names[class + 1] = bucket_name(class, due) end
    return names
  end

  -- each_line iterates over the due time and id of each line.
  function buckets.each_line(b)
    local lines = string.gmatch(b.text, '([^\t\n]+)\t([^\n]+)')
    return function()
      local offset, id = lines()
      if offset then return b.from + (tonumber(offset) or 0), id end
    end
  end

  function buckets.line(b, due, id)
    return string.format('%d\t', due - b.from) .. id .. '\n'
  end

  function buckets.line_count(text)
    local lines, at = -1, 0
    repeat
      at = string.find(text, '\n', at + 1, true)
      lines = lines + 1
    until not at
    return lines - 1
  end

  -- prefix returns the bytes before the envelope in the value of a message that is packed into a bucket of a class;
  -- location decodes them. Six bytes are enough for both, because due times end in the year 2199.
  function buckets.prefix(due, class)
    return struct.pack('>BI6', 128, due * 16 + class)
  end

  function buckets.location(value)
    if not value or #value < 7 or string.byte(value) ~= 128 then return nil end
    local location = struct.unpack('>I6', value, 2)
    return math.floor(location / 16), location % 16
  end

  -- find returns the due time and the bucket of a packed message, or nil for any other. A message is packed if the
  -- bucket named by its value has its line. Packed envelopes are at most PACK_MAX_ENVELOPE bytes, so little is read.
  -- value may be nil. Only a check calls it when no message is packed.
  function buckets.find(id, value)
    if not value then
      local length = redis.call('HSTRLEN', MESSAGES, id)
      value = length >= 7 and length <= PACK_MAX_ENVELOPE + 7 and redis.call('HGET', MESSAGES, id)
      buckets.searched = buckets.searched + SEARCH_BYTES + (value and length or 0)
    end
    local due, class = buckets.location(value)
    if not due or class >= BUCKET_CLASSES then return nil end
    local b = buckets.get(bucket_name(class, due))
    if string.find(b.text, '\n' .. buckets.line(b, due, id), 1, true) then return due, b end
    return nil
  end

  -- remove_line removes a message from its bucket.
  function buckets.remove_line(b, due, id)
    local from, to = string.find(b.text, '\n' .. buckets.line(b, due, id), 1, true)
    b.text = string.sub(b.text, 1, from) .. string.sub(b.text, to + 1)
    b.added = b.added - 1
    buckets.packed = buckets.packed - 1
  end

  -- replace_lines replaces the lines of a bucket; the first of the new ones is the empty line.
  function buckets.replace_lines(b, lines)
    local added = #lines - 1 - buckets.line_count(b.text)
    buckets.packed = buckets.packed + added
    b.text, b.added, b.replaced = table.concat(lines), b.added + added, true
  end

  -- counter_below returns a function that counts the due times in a list that are below a bound. Between calls the list
  -- may grow, and the bound must not decrease.
  function buckets.counter_below(dues)
    local earlier, open, read = 0, {}, 0
    return function(bound)
      local still = {}
      for _, due in ipairs(open) do
        if due < bound then earlier = earlier + 1 else still[#still + 1] = due end
      end
      while read < #dues do
        read = read + 1
        if dues[read] < bound then earlier = earlier + 1 else still[#still + 1] = dues[read] end
      end
      open = still
      return earlier
    end
  end

  -- write writes the changed buckets and counts. META was read before. An empty bucket is deleted.
  function buckets.write()
    local set, starts, deleted, n, add = {}, {}, {}, 0, buckets.counts.add
    for name, b in pairs(buckets.loaded) do
      if b.added ~= 0 and b.class then add(b.class, b.from, b.added) end
      local changed = b.added ~= 0 or b.replaced
      if changed and b.text ~= '\n' then
        set[n + 1], set[n + 2], n = name, b.text, n + 2
        if b.is_new then
          starts[#starts + 1], starts[#starts + 2] = string.format('%d', b.from), name
        end
      elseif changed and not b.is_new then
        deleted[#deleted + 1] = name
      end
    end
    if #set + #deleted == 0 then return end
    write('HSET', BUCKETS, set)
    write('HDEL', BUCKETS, deleted)
    write('ZADD', BUCKET_STARTS, starts)
    write('ZREM', BUCKET_STARTS, deleted)
    buckets.counts.write()
    if buckets.packed <= 0 then -- a wrong count must not hide buckets that exist
      buckets.packed = redis.call('ZCARD', BUCKET_STARTS)
    end
    redis.call('HSET', META, 'packed_messages', buckets.packed)
  end

  return buckets
end
