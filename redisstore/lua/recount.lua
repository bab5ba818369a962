#!lua flags=allow-oom
--- Compares the number of messages that count against the concurrency of a queue with its leases.
-- ARGV   1 "1" to repair
-- Reply  {number in META, number in the leases}; BUSY if the leases have more than MAX_LEASE_BYTES, which is too much
--        for one call; NEWER
-- Safe   META, DUE, BUCKET_STARTS and WAKE were read before they are written.
--@include keys
--@include any_format
--@include clock
--@include lease
--@include slots
local format, leased = unpack(redis.call('HMGET', META, 'format', 'flow_leased'))
if format and format ~= FLOW_FORMAT and format ~= PLAIN_FORMAT and format ~= PREVIOUS_FORMAT then return NEWER end
local heads = read_heads()
if not heads[1] then return { 0, 0 } end
read_slots()
local cursor, bytes, held, seen = '0', 0, 0, {}
repeat
  local step = redis.call('HSCAN', LEASES, cursor, 'COUNT', 10)
  cursor = step[1]
  for i = 1, #step[2], 2 do
    local lease, text = step[2][i], step[2][i + 1]
    bytes = bytes + #text
    if not seen[lease] and counts(text, heads) then -- HSCAN may return a lease twice
      for _ in each_entry(text) do held = held + 1 end
    end
    seen[lease] = true
  end
until cursor == '0' or bytes > MAX_LEASE_BYTES
if cursor ~= '0' then return BUSY end
leased = tonumber(leased or '') or 0
if ARGV[1] == '1' and leased ~= held then
  redis.call('HSET', META, 'flow_leased', math.max(leased, held))
  if leased > held then free_slots(leased - held, (read_clock())) end
end
return { leased, held }
