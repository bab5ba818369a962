-- line_issue returns what is wrong with a line of a bucket, or nil, and whether its message exists elsewhere or not
-- at all.
local function line_issue(due, id, class, seen)
  local value = redis.call('HGET', MSG, id)
  if not value then return 'packed without message', true end
  if seen[id] or redis.call('ZSCORE', DUE, id) or redis.call('ZSCORE', DEAD, id) then
    return 'packed and elsewhere', true
  end
  seen[id] = true
  local at, in_class = packed_location(value)
  if at ~= due or in_class ~= class then return 'packed but not found by id', false end
  return nil
end

-- check_bucket checks one bucket. Misplaced lines become entries of DUE.
local function check_bucket(name, due)
  local b = bucket(name)
  local class = (string.byte(name) or 0) - 97
  local listed = b.width > 0 and tonumber(redis.call('ZSCORE', FARS, name) or '') == b.from
  local left, seen, sound = { '\n' }, {}, listed
  local _, all = string.gsub(b.text, '[^\n]+', '')
  for at, id in each_line(b) do
    local wrong, elsewhere = line_issue(at, id, class, seen)
    if b.width == 0 and not elsewhere then -- the name encodes no time
      at = packed_location(redis.call('HGET', MSG, id)) or now
    end
    if not wrong and (at < b.from or at >= b.from + b.width) then wrong = 'packed in wrong bucket' end
    if wrong then add_issue(wrong, id) end
    if not wrong and listed then
      left[#left + 1] = bucket_line(b, at, id)
    elseif not elsewhere then
      due[#due + 1] = at
      due[#due + 1] = id
    end
    all = all - 1
    sound = sound and not wrong
  end
  if all > 0 then
    add_issue('bucket unreadable', name)
    sound = false
  end
  if not listed then
    add_issue('bucket not indexed', name)
  elseif b.text == '\n' then
    add_issue('bucket without messages', name)
    sound = false
  end
  if not sound then replace_lines(b, left) end
end

local function buckets_page(step)
  local due = {}
  for i = 1, #step, 2 do check_bucket(step[i], due) end
  if not repair then return end
  write('ZADD', DUE, due)
  write_buckets()
end

local function bucket_index_page(step)
  local deleted = {}
  for i = 1, #step, 2 do
    if redis.call('HEXISTS', FAR, step[i]) == 0 then
      add_issue('indexed bucket missing', step[i])
      deleted[#deleted + 1] = step[i]
    end
  end
  if repair then write('ZREM', FARS, deleted) end
end

-- packed_count_page compares the packed count in META with the lines of all buckets. With more than MAX_COUNTED_BUCKETS
-- buckets it only requires the count to be at least the number of buckets, since each holds at least one message.
local function packed_count_page()
  local names, total = redis.call('HLEN', FAR), 0
  if names > MAX_COUNTED_BUCKETS then
    if packed >= names then return BUSY end
    total = names
  else
    names = redis.call('HKEYS', FAR)
    for i = 1, #names, 1000 do
      for _, text in ipairs(redis.call('HMGET', FAR, unpack(names, i, math.min(i + 999, #names)))) do
        total = total + line_count(text)
      end
    end
  end
  if total == packed then return end
  add_issue('wrong packed count', '')
  if repair then redis.call('HSET', META, 'far', total) end
end
