-- Messages due in the far future are in buckets. A bucket is a text in FAR, an empty line first, then a line a message, in no
-- order: its due time less the number that is the bucket's name, a tab, its id. The field "#" and its name has the number of
-- its lines, and "=" where they are all that fit of a single due time. FARS has the bucket's lower bound: a due time belongs
-- to the bucket with the greatest bound up to it, one below all to the first. A bucket is named after the bound that it was
-- made with. Only the first one's ever changes, and stays below the next, so names are unique, and in order.
-- far is the number of all far messages, as noted in META; a script that changes buckets ends with write_far.
local buckets = {} -- by name, as this script will leave them

-- load_buckets reads buckets, each once.
local function load_buckets(names)
  local fields = {}
  for _, name in ipairs(names) do
    if not buckets[name] then
      buckets[name] = true
      fields[#fields + 1] = name
      fields[#fields + 1] = '#' .. name
    end
  end
  if #fields == 0 then return end
  local values = redis.call('HMGET', FAR, unpack(fields))
  for i = 1, #fields, 2 do
    local number = values[i + 1] or '0'
    local count = tonumber(number) -- not where it has an "="
    local full = not count
    if full then count = tonumber(string.match(number, '^%d+') or '') or 0 end
    buckets[fields[i]] = { base = tonumber(fields[i]) or 0, text = values[i] or '\n', count = count, noted = count,
      full = full, number = fields[i + 1], bound = false, changed = false }
  end
end

local function bucket(name)
  load_buckets({ name })
  return buckets[name]
end

-- bucket_of names the bucket of a due time, nil when it is below all.
local function bucket_of(due)
  return redis.call('ZRANGE', FARS, due, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1)[1]
end

-- each_far gives the due time and the id of each line.
local function each_far(b)
  local lines = string.gmatch(b.text, '([^\t\n]+)\t([^\n]+)')
  return function()
    local after, id = lines()
    if after then return b.base + (tonumber(after) or 0), id end
  end
end

local function far_line(b, due, id)
  return (due - b.base) .. '\t' .. id .. '\n'
end

-- counts_of gives the numbers of lines of buckets.
local function counts_of(names)
  local fields, counts = {}, {}
  for i, name in ipairs(names) do fields[i] = '#' .. name end
  if #fields == 0 then return counts end
  for i, number in ipairs(redis.call('HMGET', FAR, unpack(fields))) do
    counts[i] = tonumber(string.match(number or '', '^%d+') or '') or 0
  end
  return counts
end

-- far_due gives the due time of a message that is far, and its bucket; nil of any other. A message is far when the bucket
-- of the due time in its value has its line. Nothing longer than FAR_LONGEST ever is, so there is not much to read. It is
-- not to be asked where far is 0, save to find what is wrong.
local function far_due(id, value)
  if not value then
    local length = redis.call('HSTRLEN', MSG, id)
    value = length >= 7 and length <= FAR_LONGEST + 7 and redis.call('HGET', MSG, id)
  end
  if not value or #value < 7 or string.byte(value) ~= 128 then return nil end
  local due = struct.unpack('>I6', value, 2)
  local name = bucket_of(due)
  local b = name and bucket(name)
  if b and string.find(b.text, '\n' .. far_line(b, due, id), 1, true) then return due, b end
  return nil
end

-- unfold takes a message out of its bucket.
local function unfold(b, due, id)
  local from, to = string.find(b.text, '\n' .. far_line(b, due, id), 1, true)
  b.text = string.sub(b.text, 1, from) .. string.sub(b.text, to + 1)
  b.count, b.full, b.changed = b.count - 1, false, true
end

-- write_far writes the buckets that changed and the number of far messages; META was read. An empty one goes.
local function write_far()
  local set, bounds, gone, unbound = {}, {}, {}, {}
  for name, b in pairs(buckets) do
    if b.changed and b.text == '\n' then
      far = far - b.noted
      gone[#gone + 1] = name
      gone[#gone + 1] = b.number
      unbound[#unbound + 1] = name
    elseif b.changed then
      far = far + b.count - b.noted
      set[#set + 1] = name
      set[#set + 1] = b.text
      set[#set + 1] = b.number
      set[#set + 1] = b.full and b.count .. '=' or b.count
      if b.bound then
        bounds[#bounds + 1] = b.bound
        bounds[#bounds + 1] = name
      end
    end
  end
  if #set + #gone == 0 then return end
  write('HSET', FAR, set)
  write('HDEL', FAR, gone)
  write('ZADD', FARS, bounds)
  write('ZREM', FARS, unbound)
  redis.call('HSET', META, 'far', math.max(far, 0))
end
