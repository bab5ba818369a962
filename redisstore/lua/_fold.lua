-- What messages take to become far; see _far.lua.

-- A send begins with the class of META, and goes on to the next where buckets are full. balance is how many messages found them
-- full there, less those that did not, in the last sends: where it rises beyond FAR_MOST, the next class becomes the first; where
-- it falls below that and buckets have few lines, the one before.
local function class_before()
  local class, balance = string.match(far > 0 and redis.call('HGET', META, 'class') or '', '^(%d+) (-?%d+)$')
  return tonumber(class) or 0, tonumber(balance) or 0
end

local function class_after(class, balance)
  if balance > FAR_MOST then
    class, balance = math.min(class + 1, FAR_CLASSES - 1), 0
  elseif balance < -FAR_MOST then
    if class > 0 and far < 4 * redis.call('ZCARD', FARS) then class = class - 1 end
    balance = 0
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

-- fold puts messages into buckets. It gives the class of each one's bucket, nil of those that found all full; the lowest of
-- their due times when all other buckets begin later; and the class for META.
local function fold(dues, ids)
  local first_class, balance = class_before()
  local class = first_class
  local first = tonumber(redis.call('ZRANGE', FARS, 0, 0, 'WITHSCORES')[2] or '') or math.huge
  local lowest, left, classes = math.huge, {}, {}
  for i, due in ipairs(dues) do
    if due < lowest then lowest = due end
    left[i] = i
  end
  local loaded, ahead = class, 1 -- buckets of the classes before loaded are; next time more at once, for few more are full
  while left[1] and class < FAR_CLASSES do
    local names = names_in(class, dues, left)
    if class == loaded then
      local all = names
      for more = class + 1, math.min(class + ahead, FAR_CLASSES) - 1 do
        for _, name in ipairs(names_in(more, dues, left)) do all[#all + 1] = name end
      end
      load_buckets(all)
      loaded = class + ahead
      if class > first_class then ahead = 2 * ahead end
    end
    local over, full = {}, nil -- full: the due time of the one before, when its bucket was
    for k, i in ipairs(left) do
      local due = dues[i]
      if due ~= full then
        local b = buckets[names[k]]
        local text = b.text .. (due - b.from) .. '\t' .. ids[i] .. '\n'
        if #text <= FAR_BYTES then
          b.text, b.changed, classes[i], full = text, true, class, nil
        else
          full = due
        end
      end
      if due == full then over[#over + 1] = i end
    end
    far = far + #left - #over
    if class == first_class then balance = balance + 2 * #over - #left end
    left, class = over, class + 1
  end
  return classes, lowest < first and lowest or nil, class_after(first_class, balance)
end
