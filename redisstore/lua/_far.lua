-- Messages due in the far future are in buckets. A bucket is a text in FAR: an empty line, then a line a message, in no order, of
-- its due time less the time at which the bucket begins, a tab, its id. Buckets lie on grids: those of class 0 are FAR_WIDEST ms
-- wide, those of each further class a quarter of that. A bucket's name is a letter for its class and its number on the grid, so it
-- follows from a due time and a class, which a far message's value in MSG has. A bucket that is full takes no more; what comes
-- then goes into the one of the next class, so buckets of several classes overlap. FARS has the time at which each begins.
-- far is the number of all far messages, as noted in META; a script that changes buckets ends with write_far.
local buckets = {} -- by name, as this script will leave them
local known -- whether FARS is what it should be

local function name_of(class, due)
  return string.char(97 + class) .. math.floor(due / (FAR_WIDEST / 4 ^ class))
end

-- place_of gives the time at which a bucket begins and its width, nil where the name is none.
local function place_of(name)
  local class, number = (string.byte(name) or 0) - 97, tonumber(string.sub(name, 2))
  if class < 0 or class >= FAR_CLASSES or not number then return nil end
  local width = FAR_WIDEST / 4 ^ class
  return number * width, width
end

-- load_buckets reads buckets, each once, and gives how many.
local function load_buckets(names)
  local fields = {}
  for _, name in ipairs(names) do
    if not buckets[name] then
      buckets[name] = true
      fields[#fields + 1] = name
    end
  end
  if #fields == 0 then return 0 end
  known = known or redis.call('ZCARD', FARS)
  for i, text in ipairs(redis.call('HMGET', FAR, unpack(fields))) do
    local from, width = place_of(fields[i])
    buckets[fields[i]] = { from = from or 0, width = width or 0, text = text or '\n', new = not text, changed = false }
  end
  return #fields
end

local function bucket(name)
  load_buckets({ name })
  return buckets[name]
end

-- names_at gives the buckets, one of each class, in which a due time may be, whether or not they are there.
local function names_at(due)
  local names = {}
  for class = 0, FAR_CLASSES - 1 do names[class + 1] = name_of(class, due) end
  return names
end

-- each_far gives the due time and the id of each line.
local function each_far(b)
  local lines = string.gmatch(b.text, '([^\t\n]+)\t([^\n]+)')
  return function()
    local after, id = lines()
    if after then return b.from + (tonumber(after) or 0), id end
  end
end

local function far_line(b, due, id)
  return (due - b.from) .. '\t' .. id .. '\n'
end

local function lines_of(text)
  local lines, at = -1, 0
  repeat
    at = string.find(text, '\n', at + 1, true)
    lines = lines + 1
  until not at
  return lines - 1
end

-- count_far counts the lines of a bucket that are due from a time to another, exclusive.
local function count_far(b, from, to)
  if from <= b.from and b.from + b.width <= to then return lines_of(b.text) end
  local lines = 0
  for due in each_far(b) do
    if due >= from and due < to then lines = lines + 1 end
  end
  return lines
end

-- far_value is the value in MSG of a message that is put into a bucket of a class; far_place reads it. Six bytes are enough for
-- both: due times are in the year 2199 at the latest.
local function far_value(due, class, envelope)
  return struct.pack('>BI6', 128, due * 16 + class) .. envelope
end

local function far_place(value)
  if not value or #value < 7 or string.byte(value) ~= 128 then return nil end
  local packed = struct.unpack('>I6', value, 2)
  return math.floor(packed / 16), packed % 16
end

-- far_due gives the due time of a message that is far, and its bucket; nil of any other. A message is far when the bucket
-- that its value tells has its line. Nothing longer than FAR_LONGEST ever is, so there is not much to read. It is not to be
-- asked where far is 0, save to find what is wrong.
local function far_due(id, value)
  if not value then
    local length = redis.call('HSTRLEN', MSG, id)
    value = length >= 7 and length <= FAR_LONGEST + 7 and redis.call('HGET', MSG, id)
  end
  local due, class = far_place(value)
  if not due or class >= FAR_CLASSES then return nil end
  local b = bucket(name_of(class, due))
  if string.find(b.text, '\n' .. far_line(b, due, id), 1, true) then return due, b end
  return nil
end

-- unfold takes a message out of its bucket.
local function unfold(b, due, id)
  local from, to = string.find(b.text, '\n' .. far_line(b, due, id), 1, true)
  b.text = string.sub(b.text, 1, from) .. string.sub(b.text, to + 1)
  b.changed = true
  far = far - 1
end

-- replace_lines puts others in the place of a bucket's lines, which begin with an empty one.
local function replace_lines(b, lines)
  far = far - lines_of(b.text) + #lines - 1
  b.text, b.changed = table.concat(lines), true
end

-- counter_below gives a function that counts due times: those of a list, to which more may be added between two calls, that are
-- earlier than a bound, which rises.
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

-- write_far writes the buckets that changed, the number of far messages, and the class, see _fold.lua, where it is given; META
-- was read. An empty bucket goes.
local function write_far(class)
  local set, begins, gone = {}, {}, {}
  for name, b in pairs(buckets) do
    if b.changed and b.text ~= '\n' then
      set[#set + 1] = name
      set[#set + 1] = b.text
      if b.new then
        begins[#begins + 1] = b.from
        begins[#begins + 1] = name
      end
    elseif b.changed and not b.new then
      gone[#gone + 1] = name
    end
  end
  if #set + #gone == 0 and not class then return end
  write('HSET', FAR, set)
  write('HDEL', FAR, gone)
  write('ZADD', FARS, begins)
  write('ZREM', FARS, gone)
  if far <= 0 then far = redis.call('ZCARD', FARS) end -- however wrong the number was, what is far is looked for
  local noted = { 'far', far }
  if class then noted[3], noted[4] = 'class', class end
  redis.call('HSET', META, unpack(noted))
end
