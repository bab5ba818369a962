#!lua flags=no-writes
--- Counts the messages due between each of several times and the next, for as many as take about a millisecond.
-- ARGV   times in ms, increasing
-- Reply  {number of messages in DUE between each time and the next, the counts of packed messages that were read};
--        NEWER
--@include keys
--@include format
--@include read_counts
--@flow
--@include sorted
--@end
local format, packed = unpack(redis.call('HMGET', META, 'format', 'packed_messages'))
if not reads(format) then return NEWER end
local times, due_counts, reader = {}, {}, new_count_reader()
for i = 1, #ARGV do times[i] = tonumber(ARGV[i]) end
packed = tonumber(packed or '') or 0
local first_bucket = packed > 0 and tonumber(redis.call('ZRANGE', BUCKET_STARTS, 0, 0, 'WITHSCORES')[2])

--@flow
-- count_between counts the entries that are due between the times at two positions of ARGV.
local function count_between(from, to)
  return redis.call('ZCOUNT', DUE, ARGV[from], '(' .. ARGV[to])
    + redis.call('ZCOUNT', DUE, times[from] + SORTED, string.format('(%.0f', times[to] + SORTED))
end

--@end
-- count_due counts the n entries that are due between from and to. It splits non-empty ranges in half.
local function count_due(from, to, n)
  if n == 0 or to == from + 1 then
    for i = from, to - 1 do due_counts[i] = n end
    return
  end
  local middle = math.floor((from + to) / 2)
--@plain
  local earlier = redis.call('ZCOUNT', DUE, ARGV[from], '(' .. ARGV[middle])
--@end
--@flow
  local earlier = count_between(from, middle)
--@end
  count_due(from, middle, earlier)
  count_due(middle, to, n - earlier)
  reader.work = reader.work + 2
end

local last = 1
repeat
  local from = last
  last = math.min(from + HISTOGRAM_STEP, #times)
--@plain
  count_due(from, last, redis.call('ZCOUNT', DUE, ARGV[from], '(' .. ARGV[last]))
--@end
--@flow
  count_due(from, last, count_between(from, last))
--@end
  local later = {}
  for i = from == 1 and 1 or from + 1, last do
    if first_bucket and times[i] > first_bucket then later[#later + 1] = times[i] end
  end
  reader.read(later)
until last == #times or reader.work > HISTOGRAM_WORK
return { due_counts, reader.reply }
