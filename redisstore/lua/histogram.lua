#!lua flags=no-writes
--- Counts what falls due in each part of a time: entries of DUE in the first call, and then a page of buckets a call.
-- ARGV   1 due time from which to look at buckets, or "" in the first call
--        2 the bounds of the parts in ms, rising
-- Reply  {due time for the next call or "", for each part, from its bound (inclusive) to the next (exclusive), the number}
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

local start = math.max(tonumber(ARGV[1]) or 0, bounds[1])
local rank = math.max(0, redis.call('ZCOUNT', FARS, '-inf', start) - 1)
local names = redis.call('ZRANGE', FARS, rank, rank + FAR_PAGE)
local whole, whole_parts, work = {}, {}, 0
for k, name in ipairs(names) do
  local low, above = tonumber(name), tonumber(names[k + 1] or '')
  if rank + k == 1 then low = tonumber(redis.call('ZSCORE', FARS, name)) end
  if low >= bounds[parts + 1] then break end
  if k > FAR_PAGE or work >= FAR_PAGE then
    counts[1] = string.format('%.0f', low)
    break
  end
  local part = part_of(low)
  if part > 0 and above and above <= bounds[part + 1] then
    whole[#whole + 1] = name
    whole_parts[#whole_parts + 1] = part
    work = work + 1
  else
    for due in each_far(bucket(name)) do
      local at = part_of(due)
      if at > 0 and at <= parts then counts[at + 1] = counts[at + 1] + 1 end
    end
    work = work + 20
  end
end
for k, count in ipairs(counts_of(whole)) do
  counts[whole_parts[k] + 1] = counts[whole_parts[k] + 1] + count
end
return counts
