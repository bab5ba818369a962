-- What messages take to become far; see _far.lua.

-- A send begins with the class of META, and goes on to the next where buckets are full. balance is how many messages found them
-- full there, less those that did not, in the last sends: where it rises beyond MAX_BATCH, the next class becomes the first; where
-- it falls below that and buckets have few lines, the one before.
local function class_before()
  local class, balance = string.match(far > 0 and redis.call('HGET', META, 'class') or '', '^(%d+) (-?%d+)$')
  return tonumber(class) or 0, tonumber(balance) or 0
end

local function class_after(class, balance)
  if balance > MAX_BATCH then
    class, balance = math.min(class + 1, FAR_CLASSES - 1), 0
  elseif balance < -MAX_BATCH then
    if class > 0 and far < 4 * redis.call('ZCARD', FARS) then class = class - 1 end
    balance = 0
  end
  return class .. ' ' .. balance
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
  while left[1] and class < FAR_CLASSES do
    local names, width, letter, name, number = {}, FAR_WIDEST / 4 ^ class, string.char(97 + class), nil, nil
    for k, i in ipairs(left) do
      local n = math.floor(dues[i] / width)
      if n ~= number then number, name = n, letter .. n end
      names[k] = name
    end
    load_buckets(names)
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
