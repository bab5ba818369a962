#!lua flags=no-writes
--- Lists a page of the ids in GROUPS under the number of a group, in order.
-- ARGV   1 name of the group, 2 limit, 3 last id of the previous page or ""
-- Reply  {1 if the listing ends here, ids}; NEWER
--@include keys
--@include format
--@include groups
--@include byte_order
if not reads(redis.call('HGET', META, 'format')) then return NEWER end
local score = string.format('%.0f', group_number(ARGV[1]))
local start = redis.call('ZCOUNT', GROUPS, '-inf', '(' .. score)
local stop = start + redis.call('ZCOUNT', GROUPS, score, score)
if ARGV[3] ~= '' then start = first_after(GROUPS, start, stop, ARGV[3]) end
local last = math.min(start + tonumber(ARGV[2]), stop) - 1
return { last >= stop - 1 and 1 or 0, last >= start and redis.call('ZRANGE', GROUPS, start, last) or {} }
