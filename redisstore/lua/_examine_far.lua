-- bad_line tells what is wrong with a line of a bucket, and whether its message is to be found elsewhere.
local function bad_line(due, id, class, seen)
  local value = redis.call('HGET', MSG, id)
  if not value then return 'far without message', true end
  if seen[id] or redis.call('ZSCORE', DUE, id) or redis.call('ZSCORE', DEAD, id) then return 'far and elsewhere', true end
  seen[id] = true
  local at, in_class = far_place(value)
  if at ~= due or in_class ~= class then return 'far and not known to be', false end
  return nil
end

-- far_bucket looks at one bucket. Lines that are in the wrong place become entries of DUE.
local function far_bucket(name, due)
  local b = bucket(name)
  local class = (string.byte(name) or 0) - 97
  local listed = b.width > 0 and tonumber(redis.call('ZSCORE', FARS, name) or '') == b.from
  local left, seen, sound = { '\n' }, {}, listed
  local _, all = string.gsub(b.text, '[^\n]+', '')
  for at, id in each_far(b) do
    local wrong, elsewhere = bad_line(at, id, class, seen)
    if b.width == 0 and not elsewhere then at = far_place(redis.call('HGET', MSG, id)) or now end -- the name tells no time
    if not wrong and (at < b.from or at >= b.from + b.width) then wrong = 'far in another bucket' end
    if wrong then note(wrong, id) end
    if not wrong and listed then
      left[#left + 1] = far_line(b, at, id)
    elseif not elsewhere then
      due[#due + 1] = at
      due[#due + 1] = id
    end
    all = all - 1
    sound = sound and not wrong
  end
  if all > 0 then
    note('bucket unreadable', name)
    sound = false
  end
  if not listed then
    note('bucket without begin', name)
  elseif b.text == '\n' then
    note('bucket without messages', name)
    sound = false
  end
  if not sound then replace_lines(b, left) end
end

local function far_page(step)
  local due = {}
  for i = 1, #step, 2 do far_bucket(step[i], due) end
  if not mend then return end
  write('ZADD', DUE, due)
  write_far()
end

local function fars_page(step)
  local gone = {}
  for i = 1, #step, 2 do
    if redis.call('HEXISTS', FAR, step[i]) == 0 then
      note('begin without bucket', step[i])
      gone[#gone + 1] = step[i]
    end
  end
  if mend then write('ZREM', FARS, gone) end
end

-- total_page compares the number of all far messages with the lines of all buckets. Where these are too many to be counted in one
-- call, there is one message in each at least.
local function total_page()
  local names, total = redis.call('HLEN', FAR), 0
  if names > FAR_COUNTED then
    if far >= names then return BUSY end
    total = names
  else
    names = redis.call('HKEYS', FAR)
    for i = 1, #names, 1000 do
      for _, text in ipairs(redis.call('HMGET', FAR, unpack(names, i, math.min(i + 999, #names)))) do total = total + lines_of(text) end
    end
  end
  if total == far then return end
  note('another number is far', '')
  if mend then redis.call('HSET', META, 'far', total) end
end
