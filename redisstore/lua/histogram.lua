#!lua flags=no-writes
--- Counts what falls due in each part of a time: entries of DUE in the first call, and a page of buckets a call.
-- ARGV   1 time from which buckets begin that are to be looked at, or "" in the first call
--        2 the bounds of the parts in ms, rising
-- Reply  {time for the next call or "", for each part, from its bound (inclusive) to the next (exclusive), the number}
--@include keys
local far = tonumber(redis.call('HGET', META, 'far') or '') or 0
local parts = #ARGV - 2
local counts = { '' }
for i = 1, parts do
  counts[i + 1] = ARGV[1] == '' and redis.call('ZCOUNT', DUE, ARGV[i + 1], '(' .. ARGV[i + 2]) or 0
end
if far == 0 then return counts end

--@include far
local bounds = {}
for i = 1, parts + 1 do bounds[i] = tonumber(ARGV[i + 1]) end

-- part_of is the last part that does not begin after a due time, 0 when all do.
local function part_of(due)
  local from, to = 0, parts + 1
  while from < to do
    local middle = math.ceil((from + to) / 2)
    if bounds[middle] <= due then from = middle else to = middle - 1 end
  end
  return from
end

local function count(b)
  local part = part_of(b.from)
  if part > 0 and part <= parts and b.from + b.width <= bounds[part + 1] then
    counts[part + 1] = counts[part + 1] + lines_of(b.text)
    return 1
  end
  for due in each_far(b) do
    local at = part_of(due)
    if at > 0 and at <= parts then counts[at + 1] = counts[at + 1] + 1 end
  end
  return 10
end

local rising = ARGV[1]
if rising == '' then -- buckets that begin before may reach into the first part
  local names = names_at(bounds[1])
  load_buckets(names)
  for _, name in ipairs(names) do count(bucket(name)) end
  rising = '(' .. ARGV[2]
end
local found = redis.call('ZRANGE', FARS, rising, '(' .. ARGV[#ARGV], 'BYSCORE', 'LIMIT', 0, FAR_PAGE + FAR_CLASSES, 'WITHSCORES')
local names = {}
for i = 1, #found, 2 do names[#names + 1] = found[i] end
load_buckets(names)
local work, last = 0, nil
for k, name in ipairs(names) do
  local begins = found[2 * k]
  if k + work > FAR_PAGE and begins ~= last then -- a call counts all that begin at one time
    counts[1] = begins
    break
  end
  work = work + count(bucket(name)) - 1
  last = begins
end
return counts
