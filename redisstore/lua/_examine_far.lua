-- bad_line tells what is wrong with a line of a bucket, and whether its message is to be found elsewhere.
local function bad_line(due, id, seen)
  local value = redis.call('HGET', MSG, id)
  if not value then return 'far without message', true end
  if seen[id] or redis.call('ZSCORE', DUE, id) or redis.call('ZSCORE', DEAD, id) then return 'far and elsewhere', true end
  seen[id] = true
  if #value < 7 or string.byte(value) ~= 128 or struct.unpack('>I6', value, 2) ~= due then return 'far and not known to be', false end
  return nil
end

-- bound_of is the lower bound of a bucket and the next one's; nil where it has none, or another than its name says.
local function bound_of(name)
  local bound = tonumber(redis.call('ZSCORE', FARS, name) or '')
  local rank = bound and redis.call('ZRANK', FARS, name)
  if not bound or not tonumber(name) or rank > 0 and bound ~= tonumber(name) then return nil end
  local above = redis.call('ZRANGE', FARS, rank + 1, rank + 1, 'WITHSCORES')[2]
  return bound, above and tonumber(above) or math.huge
end

-- far_bucket looks at one bucket. Lines that are in the wrong place become entries of DUE.
local function far_bucket(name, due)
  local b = bucket(name)
  local bound, above = bound_of(name)
  local left, seen, lines, sound = { '\n' }, {}, 0, bound ~= nil
  local _, all = string.gsub(b.text, '[^\n]+', '')
  for at, id in each_far(b) do
    lines = lines + 1
    local wrong, elsewhere = bad_line(at, id, seen)
    if not wrong and bound and (at < bound or at >= above) then wrong = 'far in another bucket' end
    if wrong then note(wrong, id) end
    if wrong or not bound then
      sound = false
      if not elsewhere then
        due[#due + 1] = at
        due[#due + 1] = id
      end
    else
      left[#left + 1] = far_line(b, at, id)
    end
  end
  if lines < all then
    note('bucket unreadable', name)
    sound = false
  end
  if not bound then
    note('bucket without bound', name)
  elseif lines == 0 then
    if all == 0 then note('bucket without messages', name) end
    sound = false
  elseif b.count ~= lines then
    note('bucket of another number', name)
    sound = false
  end
  uncounted = uncounted + lines - (bound and b.count or 0)
  if sound then return end
  b.text, b.count, b.full, b.changed = table.concat(left), #left - 1, false, true
  b.noted = lines -- whatever is noted of each bucket, the number of all is taken to be right until it is compared
end

local function far_page(step)
  local due = {}
  for i = 1, #step, 2 do
    local name = step[i]
    if string.sub(name, 1, 1) ~= '#' then
      far_bucket(name, due)
    elseif redis.call('HEXISTS', FAR, string.sub(name, 2)) == 0 and not redis.call('ZSCORE', FARS, string.sub(name, 2)) then
      note('number of no bucket', name)
      if mend then redis.call('HDEL', FAR, name) end
    end
  end
  if not mend then return end
  write('ZADD', DUE, due)
  write_far()
end

local function fars_page(step)
  local gone = {}
  for i = 1, #step, 2 do
    if redis.call('HEXISTS', FAR, step[i]) == 0 then
      note('bound without bucket', step[i])
      gone[#gone + 1] = step[i]
      gone[#gone + 1] = '#' .. step[i]
      uncounted = uncounted - counts_of({ step[i] })[1]
    end
  end
  if not mend then return end
  write('ZREM', FARS, gone)
  write('HDEL', FAR, gone)
end

-- total_page compares the number of all far messages with those of the buckets.
local function total_page()
  if redis.call('ZCARD', FARS) > MAX_HELD then return BUSY end
  local names, total = redis.call('ZRANGE', FARS, 0, -1), tonumber(ARGV[4])
  for i = 1, #names, 1000 do
    for _, count in ipairs(counts_of({ unpack(names, i, math.min(i + 999, #names)) })) do total = total + count end
  end
  if total == far then return end
  note('another number is far', '')
  if mend then redis.call('HSET', META, 'far', total) end
end
