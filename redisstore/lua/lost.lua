#!lua flags=allow-oom
--- Finds messages in no state: live, but not due, packed, dead or leased. Makes them ready if asked to, and successors
--- live at their due times.
-- ARGV   1 "1" to repair, then ids, a few, because each one is searched for in all leases
-- Reply  {ids}; BUSY if the leases have more than MAX_LEASE_BYTES, which is too much for one call; NEWER
-- Safe   every key that is written was read before; WAKE is written first. A leased message is in a lease at the
--        moment of the script, so no held message is mistaken for a lost one.
--@include keys
--@include format
--@include clock
--@include record_changes
--@include earliest
--@include waiting
--@include buckets

-- lists reports whether a lease's text has a readable line of a message, and not only that of a longer id.
local function lists(text, id)
  local line, last, _ = '\n' .. id, 0, nil
  repeat
    _, last = string.find(text, line, last + 1, true)
    if last and (string.byte(text, last + 1) == 10 or string.find(text, '^\t%d*\t%d*\n', last + 1)) then return true end
  until not last
  return false
end

local format, packed = unpack(redis.call('HMGET', META, 'format', 'packed_messages'))
if not reads(format) then return NEWER end
local now = read_clock()
local buckets = open_buckets(packed)
redis.call('ZCARD', WAKE)
redis.call('HLEN', RECORDS)
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
local missing, left = {}, 0
for i = 2, #ARGV do
  local id = ARGV[i]
  if not missing[id] and redis.call('HEXISTS', MESSAGES, id) == 1 and not redis.call('ZSCORE', DUE, id)
    and not redis.call('ZSCORE', DEAD, id) and not buckets.find(id) then
    missing[id] = true
    left = left + 1
  end
end
local cursor, bytes = '0', 0
while left > 0 do
  local step = redis.call('HSCAN', LEASES, cursor, 'COUNT', 10)
  cursor = step[1]
  for i = 2, #step[2], 2 do
    local text = step[2][i]
    bytes = bytes + #text
    for id in pairs(missing) do
      if lists(text, id) then
        missing[id] = nil
        left = left - 1
      end
    end
  end
  if cursor == '0' then break end
  if bytes > MAX_LEASE_BYTES then return BUSY end
end
local lost, due, first, changes = {}, {}, now, new_record_changes()
for id in pairs(missing) do
  lost[#lost + 1] = id
  local epoch, _, _, refcount, rest = parse_record(redis.call('HGET', RECORDS, id))
  local successor = rest and successor_due(rest)
  if successor then changes.succeed(id, epoch, refcount) end
  due[#due + 1], due[#due + 2] = successor or now, id
  first = math.min(first, tonumber(successor or now))
end
if ARGV[1] == '1' and #lost > 0 then
  if is_earliest(head, first) then notify(first, now) end
  redis.call('ZADD', DUE, unpack(due))
  changes.write()
end
return { lost }
