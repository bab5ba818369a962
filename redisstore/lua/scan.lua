#!lua flags=no-writes
--- Returns a step of a scan over what can depart from a queue.
-- KEYS   the keys of every script, then the two of sends with a key
-- ARGV   1 part of the scan: "messages", "dedup", "once", "old_once", "keys", "limits" or "holders"; 2 cursor, 3 number
--        of messages that it looks at, about; 0 for a first step, which knows only how long the longest is; 4 run of
--        the server, or ""
-- Reply  {next cursor, bytes that were read, ids, or key and id alternating, or keys of messages, part, run of the
--        server or "", number of leases}; NEWER
-- Safe   nothing is written. The scan begins again after a restart or a failover; see _run.lua. A queue without turns
--        has nothing in the last three parts.
--@include keys
--@include format
--@include clock
--@include run
--@flow
--@include overrides
--@end
local ONCE, OLD_ONCE = unpack(KEYS, QUEUE_KEYS + 1)
local format, longest = unpack(redis.call('HMGET', META, 'format', 'max_envelope_bytes'))
if not reads(format) then return NEWER end
local now, now_us = read_clock()
local found, bytes, step = {}, 0, nil
local part, cursor, count = ARGV[1], ARGV[2], tonumber(ARGV[3])
local run = run_id()
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
elseif part == 'once' or part == 'old_once' then
  local key = part == 'once' and ONCE or OLD_ONCE
  step = redis.call('HSCAN', key, cursor, 'COUNT', MAX_SCANNED_IDS)
  for i = 1, #step[2], 2 do
    local name, value = step[2][i], step[2][i + 1]
    if name ~= 'since' and struct.unpack('>I6', value) > now then
      found[#found + 1], found[#found + 2] = name, string.sub(value, 29)
    end
  end
--@plain
else
  step = { '0' }
end
--@end
--@flow
elseif part == 'keys' then
  step = redis.call('HSCAN', KEY_STATES, cursor, 'COUNT', MAX_SCANNED_IDS)
  for i = 1, #step[2], 2 do
    local name, leased, us = step[2][i], string.match(step[2][i + 1], '^(%d+)\t(%d+)\t')
    local known = leased and (leased ~= '0' or tonumber(us) > now_us)
    if known and name ~= '' then found[#found + 1] = name end
  end
elseif part == 'holders' then
  step = redis.call('HSCAN', HOLDERS, cursor, 'COUNT', MAX_SCANNED_IDS)
  for i = 1, #step[2], 2 do found[#found + 1] = step[2][i + 1] end
else
  step = redis.call('HSCAN', KEY_FLOWS, cursor, 'COUNT', MAX_SCANNED_IDS)
  for i = 1, #step[2], 2 do
    if cut_mark(step[2][i + 1]) then found[#found + 1] = step[2][i] end
  end
end
--@end
return { step[1], bytes, found, part, run, redis.call('HLEN', LEASES) }
