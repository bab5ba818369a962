-- Of the classes in which a message may start, high goes first, then normal, then low, unless too many starts have
-- passed one over; see store.NormalEvery. flow_passed_normal and flow_passed_low of META count the starts of other
-- classes since the last one of the class, as far as a message of it might have started instead.

-- choose_class returns the class that starts next, given by class the starts that passed it over, and whether a message
-- of it may start; nil for none. At its last place among LOW_EVERY starts, a start of normal may be owed too, so low
-- goes one start earlier.
local function choose_class(passed, may)
  if may[1] and passed[1] >= NORMAL_EVERY - 1 then return 1 end
  if may[3] and passed[3] >= LOW_EVERY - 2 then return 3 end
  return may[2] and 2 or may[1] and 1 or may[3] and 3 or nil
end

-- count_start counts a start of a class.
local function count_start(passed, may, class)
  passed[1] = class == 1 and 0 or passed[1] + (may[1] and 1 or 0)
  passed[3] = class == 3 and 0 or passed[3] + (may[3] and 1 or 0)
end

-- new_candidates returns the lines of a claim that may start a message, as far as the lines have been read: may returns
-- by class whether there is one, given the messages that will start, and start counts the start of a line.
local function new_candidates(turns)
  local open, candidates = { 0, 0, 0 }, {}

  local function close(l)
    if l.open then open[l.class], l.open = open[l.class] - 1, false end
  end

  local function add(l)
    l.started = 0
    l.open = l.key.may > l.key.started and (l.count > 0 or has_more(l, 0))
    if l.open then open[l.class] = open[l.class] + 1 end
  end

  for _, k in ipairs(turns.visited) do k.started = 0 end
  for _, list in ipairs(turns.lists) do
    for _, l in ipairs(list.lines) do add(l) end
  end

  function candidates.may(left)
    local may = {}
    for class, list in ipairs(turns.lists) do
      while not left[class] and open[class] == 0 do
        local lines = list.read(8)
        if not lines then break end
        for _, l in ipairs(lines) do add(l) end
      end
      may[class] = left[class] ~= nil or open[class] > 0
    end
    return may
  end

  function candidates.start(l)
    local k = l.key
    l.started, k.started = l.started + 1, k.started + 1
    if k.started >= k.may then
      for _, other in ipairs(k.lines) do close(other) end
    elseif l.started >= l.count and not has_more(l, 0) then
      close(l)
    end
  end

  return candidates
end

-- merge_classes puts the picked messages, which are in order within each class, in the order in which they start. It
-- sets the clocks and the counts of starts that passed over a class, as they are after them.
local function merge_classes(limits, turns)
  local lists, at, candidates = { {}, {}, {} }, { 1, 1, 1 }, new_candidates(turns)
  for _, m in ipairs(turns.picked) do table.insert(lists[m.line.class], m) end
  turns.passed, turns.clocks = { unpack(limits.passed) }, { unpack(limits.clocks) }
  for i = 1, #turns.picked do
    local left = {}
    for class, list in ipairs(lists) do left[class] = list[at[class] ] end
    local may = candidates.may(left)
    local class = choose_class(turns.passed, may)
    if not left[class] then class = choose_class(turns.passed, left) end
    count_start(turns.passed, may, class)
    local m = left[class]
    at[class], turns.picked[i] = at[class] + 1, m
    turns.clocks[class] = math.max(turns.clocks[class], m.pass)
    if m.key.ordered then m.key.clocks = { unpack(turns.clocks) } end
    candidates.start(m.line)
  end
end
