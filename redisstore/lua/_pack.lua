-- Packs messages into buckets; see _buckets.lua.

-- A send starts with the class in META and moves on to the next where buckets are full. balance is the number of
-- buckets of the starting class that recent sends found full, minus those they found empty. Above CLASS_IMBALANCE,
-- the next class becomes the starting class; below -CLASS_IMBALANCE, the previous one.
local function starting_class()
  local class, balance = string.match(packed > 0 and redis.call('HGET', META, 'class') or '', '^(%d+) (-?%d+)$')
  return tonumber(class) or 0, tonumber(balance) or 0
end

local function next_class(class, balance)
  if balance > CLASS_IMBALANCE then
    class, balance = math.min(class + 1, BUCKET_CLASSES - 1), 0
  elseif balance < -CLASS_IMBALANCE then
    class, balance = math.max(class - 1, 0), 0
  end
  return class .. ' ' .. balance
end

-- bucket_names returns the names of the buckets of a class for the due times in left.
local function bucket_names(class, dues, left)
  local names, width, letter, name, number = {}, BUCKET_WIDEST_MS / 4 ^ class, string.char(97 + class), nil, nil
  for k, i in ipairs(left) do
    local n = math.floor(dues[i] / width)
    if n ~= number then number, name = n, letter .. n end
    names[k] = name
  end
  return names
end

-- pack packs messages into buckets. It returns the class of each message's bucket, nil for those that found no room
-- in about PACK_MAX_BUCKETS buckets; the lowest due time, if it may be the earliest of all packed messages; and the
-- class for META.
local function pack(dues, ids)
  local first_class, balance = starting_class()
  local starts, width = bucket_range(redis.call('ZRANGE', FARS, 0, 0)[1] or '')
  local lowest, left, classes, found_full = math.huge, {}, {}, {}
  for i, due in ipairs(dues) do
    if due < lowest then lowest = due end
    left[i] = i
  end
  local class, read = first_class, 0
  local loaded, ahead = first_class, 1 -- classes below loaded are read; ahead: how many to read next
  while left[1] and class < BUCKET_CLASSES and (class < loaded or read < PACK_MAX_BUCKETS) do
    local names = bucket_names(class, dues, left)
    if class == loaded then
      loaded = math.min(class + ahead, BUCKET_CLASSES)
      local wanted = { unpack(names) }
      for further = class + 1, loaded - 1 do
        for _, name in ipairs(bucket_names(further, dues, left)) do wanted[#wanted + 1] = name end
      end
      read = read + load_buckets(wanted)
      if class > first_class then ahead = 2 * ahead end
    end
    local over, full = {}, nil -- full: the previous due time, if its bucket was full
    for k, i in ipairs(left) do
      local due = dues[i]
      if due ~= full then
        local b = buckets[names[k]]
        local text = b.text .. (due - b.from) .. '\t' .. ids[i] .. '\n'
        if #text > BUCKET_BYTES then
          full = due
          if class == first_class and not found_full[names[k]] then balance = balance + 1 end
          found_full[names[k]] = true
        else
          if class == first_class and b.text == '\n' then balance = balance - 1 end
          b.text, b.changed, classes[i], full = text, true, class, nil
        end
      end
      if due == full then over[#over + 1] = i end
    end
    packed = packed + #left - #over
    left, class = over, class + 1
  end
  local earliest = not starts or lowest < starts + width
  return classes, earliest and lowest or nil, next_class(first_class, balance)
end
