#!lua flags=no-writes
--- Counts the messages due in each of several intervals: entries of DUE in the first call, and a page of buckets per
--        call.
-- ARGV   1 start time of the first bucket to read, or "" in the first call
--        2 the bounds of the intervals in ms, increasing
-- Reply  {start time for the next call or "", for each interval, from its bound (inclusive) to the next (exclusive),
--        the count}
--@include keys
local packed = tonumber(redis.call('HGET', META, 'far') or '') or 0
local parts = #ARGV - 2
local counts = { '' }
for i = 1, parts do
  counts[i + 1] = ARGV[1] == '' and redis.call('ZCOUNT', DUE, ARGV[i + 1], '(' .. ARGV[i + 2]) or 0
end
if packed == 0 then return counts end

--@include buckets
local bounds = {}
for i = 1, parts + 1 do bounds[i] = tonumber(ARGV[i + 1]) end

-- part_of returns the last interval that does not start after a due time, or 0 if all do.
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
    counts[part + 1] = counts[part + 1] + line_count(b.text)
    return 1
  end
  for due in each_line(b) do
    local at = part_of(due)
    if at > 0 and at <= parts then counts[at + 1] = counts[at + 1] + 1 end
  end
  return 10
end

local min_start = ARGV[1]
if min_start == '' then -- buckets that start earlier may reach into the first interval
  local names = bucket_names_at(bounds[1])
  load_buckets(names)
  for _, name in ipairs(names) do count(bucket(name)) end
  min_start = '(' .. ARGV[2]
end
local found = redis.call('ZRANGE', FARS, min_start, '(' .. ARGV[#ARGV], 'BYSCORE',
  'LIMIT', 0, BUCKET_PAGE + BUCKET_CLASSES, 'WITHSCORES')
local names = {}
for i = 1, #found, 2 do names[#names + 1] = found[i] end
load_buckets(names)
local work, last = 0, nil
for k, name in ipairs(names) do
  local starts = found[2 * k]
  if k + work > BUCKET_PAGE and starts ~= last then -- one call counts all buckets with the same start
    counts[1] = starts
    break
  end
  work = work + count(bucket(name)) - 1
  last = starts
end
return counts
