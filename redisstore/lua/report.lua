#!lua flags=allow-oom
--- Adds to the counts of events of a queue, and passes events on to its watchers.
-- KEYS   the keys of every script, then the activity; in a Cluster then the channel of its watchers
-- ARGV   1 PUBLISH or SPUBLISH, 2 channel, 3 text to publish
--        4 ms of retention of the counts
--        5 for each window, by ";": a letter, the width of its buckets in ms, and their number
--        then for each kind of event: name, count
-- Reply  number of watchers, or -1 if this process may not publish; NEWER
-- Safe   META and ACTIVITY are read first. A repeated call counts twice. The size of ACTIVITY is bounded, because
--        buckets replace earlier ones, so it is written on a full server, too.
--@include keys
--@include format
--@include clock
local ACTIVITY = KEYS[QUEUE_KEYS + 1]
local format = redis.call('HGET', META, 'format')
if not reads(format) then return NEWER end
if format and ARGV[6] then
  local now = read_clock()
  local names, numbers = {}, {}
  for letter, width, slots in string.gmatch(ARGV[5], '(%a) (%d+) (%d+)') do
    local number = math.floor(now / width)
    names[#names + 1] = letter .. number % slots
    numbers[#numbers + 1] = string.format('%.0f', number)
  end
  local buckets, changed = redis.call('HMGET', ACTIVITY, unpack(names)), {}
  for i, name in ipairs(names) do
    local number, text = string.match(buckets[i] or '', '^(%d+)(.*)$')
    if number ~= numbers[i] then text = '' end
    local counts, kinds = {}, {}
    for kind, count in string.gmatch(text, '([%l_]+) (%d+)') do
      kinds[#kinds + 1] = kind
      counts[kind] = tonumber(count)
    end
    for a = 6, #ARGV, 2 do
      local kind = ARGV[a]
      if not counts[kind] then kinds[#kinds + 1] = kind end
      counts[kind] = (counts[kind] or 0) + tonumber(ARGV[a + 1])
    end
    local words = { numbers[i] }
    for _, kind in ipairs(kinds) do words[#words + 1] = kind .. ' ' .. string.format('%.0f', counts[kind]) end
    changed[#changed + 1], changed[#changed + 2] = name, table.concat(words, ' ')
  end
  redis.call('HSET', ACTIVITY, unpack(changed))
  redis.call('PEXPIRE', ACTIVITY, ARGV[4])
end
local heard = redis.pcall(ARGV[1], ARGV[2], ARGV[3])
return type(heard) == 'number' and heard or -1
