#!lua flags=no-writes
--- Counts what falls due in each part of a time.
-- ARGV   the bounds of the parts in ms, rising
-- Reply  for each part, from its bound (inclusive) to the next (exclusive), the number
--@include keys
local counts = {}
for i = 1, #ARGV - 1 do
  counts[i] = redis.call('ZCOUNT', DUE, ARGV[i], '(' .. ARGV[i + 1])
end
return counts
