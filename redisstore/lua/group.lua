#!lua flags=no-writes
--- Lists a page of the ids in GROUPS under the number of a group, in order.
-- ARGV   1 name of the group, 2 limit, 3 last id of the previous page or "", 4 "1" to leave out the ids of another
--        group with this number, for a caller that does not read the messages
-- Reply  {1 if the listing ends here, ids, last id that was looked at}; NEWER
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
local ids = last >= start and redis.call('ZRANGE', GROUPS, start, last) or {}
if ARGV[4] ~= '1' then return { last >= stop - 1 and 1 or 0, ids, ids[#ids] or '' } end

-- The group is in the first bytes of an envelope, but Redis has no command to read only the first bytes of a field.
local members, ended, bytes = {}, last >= stop - 1, 0
for i, id in ipairs(ids) do
  bytes = bytes + redis.call('HSTRLEN', MESSAGES, id)
  if i > 1 and bytes > MAX_READ then
    return { 0, members, ids[i - 1] }
  end
  local value = redis.call('HGET', MESSAGES, id) or ''
  if string.byte(value) == 128 and #value >= 7 then value = string.sub(value, 8) end
  if group_name(value) == ARGV[1] then members[#members + 1] = id end
end
return { ended and 1 or 0, members, ids[#ids] or '' }
