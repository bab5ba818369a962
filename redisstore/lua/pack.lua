#!lua
--- Packs messages due far ahead that send_one.lua left in DUE, up to MAX_PACKED: one call for many of its sends.
-- Reply  0, also if the queue has another format
-- Safe   no allow-oom: buckets are written before the longer keys shrink. Every key was read before the first write. A
--        waiting process has promised to claim by the time of each message, and then finds its bucket.
--@include keys
--@include clock
--@include pack
local format, packed, longest = unpack(redis.call('HMGET', META, 'format', 'packed_messages', 'max_envelope_bytes'))
if format ~= FORMAT then return 0 end
local now, now_us = read_clock()
local near = redis.call('ZCOUNT', DUE, '-inf', string.format('%.0f', now + PACK_AFTER_MS))
--@plain
local far = redis.call('ZCARD', DUE) - near
--@end
--@flow
local far = redis.call('ZCOUNT', DUE, '-inf', string.format('(%.0f', SORTED)) - near
--@end
-- Messages that cannot be packed stay, so that each call begins somewhere else.
local first = near + now_us % math.max(far - MAX_PACKED + 1, 1)
--@plain
local entries = redis.call('ZRANGE', DUE, first, first + MAX_PACKED - 1, 'WITHSCORES')
--@end
--@flow
local last = math.min(first + MAX_PACKED, near + far) - 1 -- sorted messages follow, which stay
local entries = last >= first and redis.call('ZRANGE', DUE, first, last, 'WITHSCORES') or {}
--@end
local measure = #entries / 2 * tonumber(longest or 0) > PACK_BYTES -- whether to look at the lengths of values
local found, dues, bytes = {}, {}, 0
for i = 1, #entries, 2 do
  local length = measure and redis.call('HSTRLEN', MESSAGES, entries[i]) or 0
  if length <= PACK_MAX_ENVELOPE then
    bytes = bytes + length
    if bytes > PACK_BYTES then break end
    found[#found + 1] = entries[i]
    dues[#found] = tonumber(entries[i + 1])
  end
end
local values = found[1] and redis.call('HMGET', MESSAGES, unpack(found)) or {}
local ids, pack_dues, envelopes = {}, {}, {}
for i, id in ipairs(found) do
  local value = values[i] or ''
  if string.byte(value) == 128 then value = string.sub(value, 8) end -- the message was packed before
  if value ~= '' and #value <= PACK_MAX_ENVELOPE then
    local n = #ids + 1
    ids[n], pack_dues[n], envelopes[n] = id, dues[i], value
  end
end
local buckets = open_buckets(packed)
local classes = pack(buckets, pack_dues, ids)
local set, gone = {}, {}
for i, id in ipairs(ids) do
  if classes[i] then
    gone[#gone + 1] = id
    set[#set + 1] = id
    set[#set + 1] = buckets.value(pack_dues[i], classes[i], envelopes[i])
  end
end
buckets.write()
write('HSET', MESSAGES, set)
write('ZREM', DUE, gone)
return 0
