-- What messages take to become far; see _far.lua.

-- A send begins with the class of META, and goes on to the next where buckets are full. balance is how many buckets of that class
-- the last sends found full, less those that they found empty: where it rises beyond FAR_MOST, the next class becomes the first,
-- where it falls below -FAR_MOST, the one before.
local function class_before()
  local class, balance = string.match(far > 0 and redis.call('HGET', META, 'class') or '', '^(%d+) (-?%d+)$')
  return tonumber(class) or 0, tonumber(balance) or 0
end

local function class_after(class, balance)
  if balance > FAR_MOST then
    class, balance = math.min(class + 1, FAR_CLASSES - 1), 0
  elseif balance < -FAR_MOST then
    class, balance = math.max(class - 1, 0), 0
  end
  return class .. ' ' .. balance
end

-- names_in names the buckets of a class for those of due times that are left.
local function names_in(class, dues, left)
  local names, width, letter, name, number = {}, FAR_WIDEST / 4 ^ class, string.char(97 + class), nil, nil
  for k, i in ipairs(left) do
    local n = math.floor(dues[i] / width)
    if n ~= number then number, name = n, letter .. n end
    names[k] = name
  end
  return names
end

-- fold puts messages into buckets. It gives the class of each one's bucket, nil of those that found no room in FAR_READ buckets
-- or so; the lowest of their due times when it may be the earliest of all that are far; and the class for META.
local function fold(dues, ids)
  local first_class, balance = class_before()
  local begins, width = place_of(redis.call('ZRANGE', FARS, 0, 0)[1] or '')
  local lowest, left, classes, found_full = math.huge, {}, {}, {}
  for i, due in ipairs(dues) do
    if due < lowest then lowest = due end
    left[i] = i
  end
  local class, read = first_class, 0
  local loaded, ahead = first_class, 1 -- classes before loaded are read; the next time ahead of them at once
  while left[1] and class < FAR_CLASSES and (class < loaded or read < FAR_READ) do
    local names = names_in(class, dues, left)
    if class == loaded then
      loaded = math.min(class + ahead, FAR_CLASSES)
      local wanted = { unpack(names) }
      for further = class + 1, loaded - 1 do
        for _, name in ipairs(names_in(further, dues, left)) do wanted[#wanted + 1] = name end
      end
      read = read + load_buckets(wanted)
      if class > first_class then ahead = 2 * ahead end
    end
    local over, full = {}, nil -- full: the due time of the one before, when its bucket was
    for k, i in ipairs(left) do
      local due = dues[i]
      if due ~= full then
        local b = buckets[names[k]]
        local text = b.text .. (due - b.from) .. '\t' .. ids[i] .. '\n'
        if #text > FAR_BYTES then
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
    far = far + #left - #over
    left, class = over, class + 1
  end
  local earliest = not begins or lowest < begins + width
  return classes, earliest and lowest or nil, class_after(first_class, balance)
end
