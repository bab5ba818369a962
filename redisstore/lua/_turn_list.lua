-- A line is a key in the turns of one class. Claims plan the turns of lines as if all lanes were long.

-- digits_of returns a name as numbers of six bytes, which compare like the bytes.
local function digits_of(k)
  if not k.digits then
    k.digits = {}
    for i = 1, #k.name, 6 do
      local a, b, c, d, e, f = string.byte(k.name, i, i + 5)
      k.digits[#k.digits + 1] = ((((a * 256 + (b or 0)) * 256 + (c or 0)) * 256 + (d or 0)) * 256 + (e or 0)) * 256
        + (f or 0)
    end
  end
  return k.digits
end

-- has_more reports whether a line may have more than n messages that have been read and not looked at, or are to be
-- read.
local function has_more(l, n)
  return not l.ended or #l.messages - l.taken > n
end

-- goes_before reports whether a turn of a line goes before another one: by the pass, then by the bytes of the name.
local function goes_before(pass, l, other_pass, other)
  if pass ~= other_pass then return pass < other_pass end
  if l.key == other.key then return false end
  local a, b = digits_of(l.key), digits_of(other.key)
  for i = 1, #a do
    if a[i] ~= b[i] then return a[i] < (b[i] or -1) end
  end
  return #a < #b
end

-- sink moves the line at a position of a heap of n lines behind the ones that go before it.
local function sink(heap, i, n)
  local l = heap[i]
  while 2 * i <= n do
    local child = 2 * i
    if child < n and goes_before(heap[child + 1].next, heap[child + 1], heap[child].next, heap[child]) then
      child = child + 1
    end
    if not goes_before(heap[child].next, heap[child], l.next, l) then break end
    heap[i] = heap[child]
    i = child
  end
  heap[i] = l
end

-- lift moves the line at a position of a heap before the ones that it goes before.
local function lift(heap, i)
  local l = heap[i]
  while i > 1 do
    local above = math.floor(i / 2)
    if not goes_before(l.next, l, heap[above].next, heap[above]) then break end
    heap[i] = heap[above]
    i = above
  end
  heap[i] = l
end

-- new_turn_list returns the turns of a class in a claim. key is the sorted set with the turns; make returns the lines
-- of keys with some names and passes. lines are the ones that were read or added. Lines come from four lists: the ones
-- that were just read, and the ones that were added, which are in order; the ones of the usual weight that have
-- started, which stay in order; and a heap of all others.
local function new_turn_list(key, usual, make)
  local list = { lines = {}, at_end = false, cut = false } -- cut: too many lines were read
  local seen, last = 0, nil -- last: the last line that was read
  local heap, size, fresh, again, added, from -- from: the list of the line that goes next
  local first_fresh, first_again, last_again, first_added

  -- read reads about n more lines and returns them; nil if there are no more, or too many.
  function list.read(n)
    local more = math.min(math.max(n, seen), MAX_PLACED - seen)
    list.cut = not list.at_end and more <= 0
    if list.at_end or list.cut then return nil end
    local read = redis.call('ZRANGE', key, seen, seen + more - 1, 'WITHSCORES')
    local names, passes = {}, {}
    for i = 1, #read, 2 do names[#names + 1], passes[#passes + 1] = read[i], tonumber(read[i + 1]) end
    list.at_end = #names < more
    seen = seen + #names
    local lines = make(names, passes)
    for _, l in ipairs(lines) do list.lines[#list.lines + 1], last = l, l end
    return lines
  end

  -- add adds lines of keys that have no turns yet, in order.
  function list.add(lines)
    for _, l in ipairs(lines) do list.lines[#list.lines + 1] = l end
  end

  -- begin begins a plan with the lines that may go on.
  function list.begin()
    heap, fresh, again, added = {}, {}, {}, {}
    first_fresh, first_again, last_again, first_added = 1, 1, 0, 1
    for _, l in ipairs(list.lines) do
      l.planned, l.key.planned = 0, 0
      if l.key.may > l.key.count and has_more(l, 0) then
        local to = l.direct and l.count == 0 and added or heap
        to[#to + 1] = l
      end
    end
    size = #heap
    for i = math.floor(size / 2), 1, -1 do sink(heap, i, size) end
  end

  -- leave takes the line that goes next out of its list.
  local function leave()
    if from == fresh then
      first_fresh = first_fresh + 1
    elseif from == added then
      first_added = first_added + 1
    elseif from == again then
      first_again = first_again + 1
    else
      local bottom = heap[size]
      heap[size] = nil
      size = size - 1
      if size > 0 then
        heap[1] = bottom
        sink(heap, 1, size)
      end
    end
  end

  -- first returns the line that goes next, nil for none, if about n more turns are planned.
  function list.first(n)
    while true do
      local l = heap[1]
      from = heap
      local f, a, d = fresh[first_fresh], again[first_again], added[first_added]
      if f and (not l or goes_before(f.next, f, l.next, l)) then l, from = f, fresh end
      if a and (not l or goes_before(a.next, a, l.next, l)) then l, from = a, again end
      if d and (not l or goes_before(d.next, d, l.next, l)) then l, from = d, added end
      if not list.at_end and (not l or not last or goes_before(last.pass, last, l.next, l)) then
        local lines = list.read(n)
        if not lines then return nil end
        fresh, first_fresh = {}, 1
        for _, new in ipairs(lines) do
          new.planned, new.key.planned = 0, new.key.planned or 0
          if new.key.may > 0 then fresh[#fresh + 1] = new end
        end
      elseif not l or l.key.count + l.key.planned < l.key.may then
        return l
      else
        leave() -- the key has its turns in other classes
      end
    end
  end

  -- take gives its turn to the line that goes next.
  function list.take(l)
    local k = l.key
    l.planned, k.planned, l.next = l.planned + 1, k.planned + 1, l.next + 1 / k.weight
    local goes_on, is_usual = k.count + k.planned < k.may and has_more(l, l.planned), k.weight == usual
    if from == heap and goes_on and not is_usual then
      sink(heap, 1, size)
      return
    end
    leave()
    if goes_on and is_usual then
      last_again = last_again + 1
      again[last_again] = l
    elseif goes_on then
      size = size + 1
      heap[size] = l
      lift(heap, size)
    end
  end

  return list
end
