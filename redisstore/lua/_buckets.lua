-- Messages due far ahead are packed into buckets. A bucket is a field of FAR: an empty line, then one line a message
-- in any order, with the due time relative to the start of the bucket in ms, a tab and the id. Buckets lie on grids:
-- class 0 is BUCKET_WIDEST_MS ms wide, each further class a quarter of the one before. A bucket's name is a letter
-- for its class and its number on that grid, so it follows from a due time and a class, which a packed message's
-- value in MSG contains. A full bucket takes no more: later messages go to the bucket of the next class, so buckets
-- of several classes overlap. FARS is an index of the buckets by start time. packed is the number of packed messages,
-- from META; a script that changes buckets ends with write_buckets.
local buckets = {} -- by name, as this script will leave them
local index_checked -- set once the type of FARS has been checked

local function bucket_name(class, due)
  return string.char(97 + class) .. math.floor(due / (BUCKET_WIDEST_MS / 4 ^ class))
end

-- bucket_range returns the start and the width of a bucket, or nil if the name is invalid.
local function bucket_range(name)
  local class, number = (string.byte(name) or 0) - 97, tonumber(string.sub(name, 2))
  if class < 0 or class >= BUCKET_CLASSES or not number then return nil end
  local width = BUCKET_WIDEST_MS / 4 ^ class
  return number * width, width
end

-- load_buckets reads each bucket once and returns how many it read.
local function load_buckets(names)
  local fields = {}
  for _, name in ipairs(names) do
    if not buckets[name] then
      buckets[name] = true
      fields[#fields + 1] = name
    end
  end
  if #fields == 0 then return 0 end
  index_checked = index_checked or redis.call('ZCARD', FARS)
  for i, text in ipairs(redis.call('HMGET', FAR, unpack(fields))) do
    local from, width = bucket_range(fields[i])
    buckets[fields[i]] = { from = from or 0, width = width or 0, text = text or '\n', new = not text, changed = false }
  end
  return #fields
end

local function bucket(name)
  load_buckets({ name })
  return buckets[name]
end

-- bucket_names_at returns the buckets, one of each class, that may hold a due time, whether or not they exist.
local function bucket_names_at(due)
  local names = {}
  for class = 0, BUCKET_CLASSES - 1 do names[class + 1] = bucket_name(class, due) end
  return names
end

-- each_line iterates over the due time and id of each line.
local function each_line(b)
  local lines = string.gmatch(b.text, '([^\t\n]+)\t([^\n]+)')
  return function()
    local after, id = lines()
    if after then return b.from + (tonumber(after) or 0), id end
  end
end

local function bucket_line(b, due, id)
  return (due - b.from) .. '\t' .. id .. '\n'
end

local function line_count(text)
  local lines, at = -1, 0
  repeat
    at = string.find(text, '\n', at + 1, true)
    lines = lines + 1
  until not at
  return lines - 1
end

-- count_due counts the lines due from a time (inclusive) to another (exclusive).
local function count_due(b, from, to)
  if from <= b.from and b.from + b.width <= to then return line_count(b.text) end
  local lines = 0
  for due in each_line(b) do
    if due >= from and due < to then lines = lines + 1 end
  end
  return lines
end

-- packed_value returns the value in MSG of a message packed into a bucket of a class; packed_location decodes it. Six
-- bytes are enough for both, because due times end in the year 2199.
local function packed_value(due, class, envelope)
  return struct.pack('>BI6', 128, due * 16 + class) .. envelope
end

local function packed_location(value)
  if not value or #value < 7 or string.byte(value) ~= 128 then return nil end
  local packed = struct.unpack('>I6', value, 2)
  return math.floor(packed / 16), packed % 16
end

-- packed_due returns the due time and the bucket of a packed message, or nil for any other. A message is packed if
-- the bucket named by its value has its line. Packed envelopes are at most PACK_MAX_ENVELOPE bytes, so little is
-- read. Only a check calls it when packed is 0.
local function packed_due(id, value)
  if not value then
    local length = redis.call('HSTRLEN', MSG, id)
    value = length >= 7 and length <= PACK_MAX_ENVELOPE + 7 and redis.call('HGET', MSG, id)
  end
  local due, class = packed_location(value)
  if not due or class >= BUCKET_CLASSES then return nil end
  local b = bucket(bucket_name(class, due))
  if string.find(b.text, '\n' .. bucket_line(b, due, id), 1, true) then return due, b end
  return nil
end

-- remove_line removes a message from its bucket.
local function remove_line(b, due, id)
  local from, to = string.find(b.text, '\n' .. bucket_line(b, due, id), 1, true)
  b.text = string.sub(b.text, 1, from) .. string.sub(b.text, to + 1)
  b.changed = true
  packed = packed - 1
end

-- replace_lines replaces the lines of a bucket; the first of the new ones is the empty line.
local function replace_lines(b, lines)
  packed = packed - line_count(b.text) + #lines - 1
  b.text, b.changed = table.concat(lines), true
end

-- counter_below returns a function that counts the due times in a list that are below a bound. Between calls the list
-- may grow, and the bound must not decrease.
local function counter_below(dues)
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

-- write_buckets writes the changed buckets, the packed count and, if given, the class (see _pack.lua). META was read
-- before. An empty bucket is deleted.
local function write_buckets(class)
  local set, starts, deleted = {}, {}, {}
  for name, b in pairs(buckets) do
    if b.changed and b.text ~= '\n' then
      set[#set + 1] = name
      set[#set + 1] = b.text
      if b.new then
        starts[#starts + 1] = b.from
        starts[#starts + 1] = name
      end
    elseif b.changed and not b.new then
      deleted[#deleted + 1] = name
    end
  end
  if #set + #deleted == 0 and not class then return end
  write('HSET', FAR, set)
  write('HDEL', FAR, deleted)
  write('ZADD', FARS, starts)
  write('ZREM', FARS, deleted)
  if packed <= 0 then packed = redis.call('ZCARD', FARS) end -- a wrong count must not hide buckets that exist
  local noted = { 'far', packed }
  if class then noted[3], noted[4] = 'class', class end
  redis.call('HSET', META, unpack(noted))
end
