#!lua flags=no-writes
--- Returns a step of a scan over what can depart from a queue.
-- KEYS   the keys of every script, then the two of sends with a key
-- ARGV   1 part of the scan: "messages", "dedup", "once" or "old_once"; 2 cursor, 3 number of messages that it looks
--        at, about; 0 for a first step, which knows only how long the longest is; 4 run of the server, or ""
-- Reply  {next cursor, bytes that were read, ids, or key and id alternating, part, run of the server or "", number of
--        leases}; NEWER
-- Safe   nothing is written. A cursor has a meaning only in the server that gave it, as long as it runs: each one has
--        its own order of fields. So the scan begins again after a restart or a failover.
--@include keys
--@include format
--@include clock
local ONCE, OLD_ONCE = unpack(KEYS, QUEUE_KEYS + 1)
local format, longest = unpack(redis.call('HMGET', META, 'format', 'max_envelope_bytes'))
if not reads(format) then return NEWER end
local now = read_clock()
local found, bytes, step = {}, 0, nil
local part, cursor, count = ARGV[1], ARGV[2], tonumber(ARGV[3])
local info = redis.pcall('INFO', 'server')
local run = type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
if ARGV[4] ~= '' and ARGV[4] ~= run then part, cursor, count = 'messages', '0', 0 end
if part == 'messages' then
  if count == 0 then count = math.floor(PAGE_BYTES / math.max(1, tonumber(longest or '') or 1)) end
  step = redis.call('HSCAN', MESSAGES, cursor, 'COUNT', math.max(1, math.min(MAX_SCANNED_IDS, count)))
  for i = 1, #step[2], 2 do
    found[#found + 1] = step[2][i]
    bytes = bytes + #step[2][i] + #step[2][i + 1]
  end
elseif part == 'dedup' then
  step = redis.call('ZSCAN', DEDUP, cursor, 'COUNT', MAX_SCANNED_IDS)
  for i = 1, #step[2], 2 do
    if tonumber(step[2][i + 1]) > now then found[#found + 1] = step[2][i] end
  end
else
  local key = part == 'once' and ONCE or OLD_ONCE
  step = redis.call('HSCAN', key, cursor, 'COUNT', MAX_SCANNED_IDS)
  for i = 1, #step[2], 2 do
    local name, value = step[2][i], step[2][i + 1]
    if name ~= 'since' and struct.unpack('>I6', value) > now then
      found[#found + 1] = name
      found[#found + 1] = string.sub(value, 29)
    end
  end
end
return { step[1], bytes, found, part, run, redis.call('HLEN', LEASES) }
