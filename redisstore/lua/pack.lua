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
local far = redis.call('ZCOUNT', DUE, '-inf', string.format('(%.0f', SORTED)) - near
-- Messages that cannot be packed stay, so that each call begins somewhere else.
local first = near + now_us % math.max(far - MAX_PACKED + 1, 1)
local last = math.min(first + MAX_PACKED, near + far) - 1 -- sorted messages follow, which stay
local entries = last >= first and redis.call('ZRANGE', DUE, first, last, 'WITHSCORES') or {}
local count = #entries / 2
local measure = count * tonumber(longest or 0) > PACK_BYTES -- whether to look at the lengths of values
local found, scores, n, bytes = {}, {}, 0, 0
for i = 1, 2 * count, 2 do
  local length = measure and redis.call('HSTRLEN', MESSAGES, entries[i]) or 0
  if length <= PACK_MAX_ENVELOPE then
    bytes = bytes + length
    if bytes > PACK_BYTES then break end
    n = n + 1
    found[n], scores[n] = entries[i], entries[i + 1]
  end
end
local values = n > 0 and redis.call('HMGET', MESSAGES, unpack(found)) or {}
local dues, ids, at, set, m, byte = {}, {}, {}, {}, 0, string.byte
for i = 1, n do
  local value = values[i] or ''
  if byte(value) == 128 then value = string.sub(value, 8) end -- the message was packed before
  if value ~= '' and #value <= PACK_MAX_ENVELOPE then
    m = m + 1
    dues[m], ids[m], at[m] = scores[i] + 0, found[i], 2 * m
    set[2 * m - 1], set[2 * m] = found[i], value
  end
end
local buckets = open_buckets(packed)
local rest, gone, all = {}, ids, set
pack(buckets, dues, ids, at, set, rest)
if rest[1] then
  local stays = {}
  for i = 2, #rest, 2 do stays[rest[i]] = true end
  gone, set = {}, {}
  for k, id in ipairs(ids) do
    if not stays[id] then gone[#gone + 1], set[#set + 1], set[#set + 2] = id, id, all[at[k]] end
  end
end
buckets.write()
write('HSET', MESSAGES, set)
if #gone == count and count > 0 then
  redis.call('ZREMRANGEBYRANK', DUE, first, first + count - 1)
else
  write('ZREM', DUE, gone)
end
return 0
