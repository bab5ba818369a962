#!lua
--- Adds messages; all of them or none, save for ids that are living or remembered.
-- ARGV   1 "1" when the queue's name is registered and the queue may be created
--        2 "1" when an earlier call with these messages may have been done and its reply lost
--        3 length of the longest envelope
--        then for each message: id, due ("+ms" from now, or ms since 1970), envelope
--        last "durable" when the caller waits until the messages are so
-- Reply  positions (from 1) of the messages that are duplicates; UNREGISTERED; NEWER
-- Safe   no allow-oom: a full server refuses the script whole. WAKE is written first; every other key was read. A
--        durable send of duplicates writes what is there.
--@include keys
local meta = redis.call('HMGET', META, 'format', 'longest')
--@include format
if not meta[1] and ARGV[1] ~= '1' then return UNREGISTERED end
--@include now
--@include record
--@include wake
local count = math.floor((#ARGV - 3) / 3)
local ids = {}
for i = 1, count do ids[i] = ARGV[3 * i + 1] end

--@include taken

local z, h, kept, duplicates, n, first, dues = {}, {}, {}, {}, 0, nil, {}
for i = 1, count do
  local was = stored[i]
  if was or (done and done[i] and tonumber(done[i]) > now) then
    if not (again and was == ARGV[3 * i + 3]) then duplicates[#duplicates + 1] = i end
  else
    local text = ARGV[3 * i + 2]
    local due = dues[text]
    if not due then
      due = due_at(text)
      dues[text] = due
      dues[due] = string.format('%.0f', due)
    end
    if not first or due < first then first = due end
    n = n + 2
    z[n - 1] = dues[due] z[n] = ids[i]
    h[n - 1] = ids[i]    h[n] = ARGV[3 * i + 3]
    if tries and tries[i] then
      local epoch, _, _, pins = parse(tries[i])
      kept[#kept + 1] = ids[i]
      kept[#kept + 1] = record(epoch, 0, '0', pins, '')
    end
  end
end
if n == 0 then
  -- WAIT and WAITAOF cover what the server wrote up to the connection's own last write, so there must be one.
  if #ARGV % 3 == 1 and meta[1] then redis.call('HSET', META, 'format', FORMAT) end
  return duplicates
end

wake(head, first)
redis.call('HSET', MSG, unpack(h))
redis.call('ZADD', DUE, unpack(z))
if #kept > 0 then redis.call('HSET', TRIES, unpack(kept)) end
if not meta[1] then
  redis.call('HSET', META, 'format', FORMAT, 'longest', ARGV[3])
elseif tonumber(ARGV[3]) > tonumber(meta[2] or 0) then
  redis.call('HSET', META, 'longest', ARGV[3])
end
return duplicates
