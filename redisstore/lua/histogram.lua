#!lua flags=no-writes
--- Counts the messages due before each of several times, for as many of the first ones as take about a millisecond.
-- ARGV   times in ms, increasing
-- Reply  for each time a list: how many messages in DUE are due from the time before (none for the first one), how many
--        messages are in buckets that end before it; and of the other buckets with messages due before it, start and
--        text alternating. The caller counts the lines of those, which would take most of the server's time.
--@include keys
--@include count_before
local buckets = open_buckets(redis.call('HGET', META, 'packed_messages'))
local packed, reply = new_packed_counter(buckets), {}
for i, time in ipairs(ARGV) do
  if i + packed.work > HISTOGRAM_WORK and i > 2 then break end
  local due = i > 1 and redis.call('ZCOUNT', DUE, ARGV[i - 1], '(' .. time) or 0
  local sum, names = packed.divide(tonumber(time))
  local one = { due, sum }
  for _, name in ipairs(names) do
    local b = buckets.loaded[name]
    if b.text ~= '\n' then
      one[#one + 1] = string.format('%.0f', b.from)
      one[#one + 1] = b.text
    end
  end
  reply[i] = one
end
return reply
