#!lua flags=no-writes
--- Searches a part of the open leases for messages, about a millisecond's worth per call.
-- ARGV   1 HSCAN cursor, then ids
-- Reply  {next cursor, texts of leases that may hold one of the messages and their deadlines or false, alternating};
--        NEWER
--@include keys
--@include format
if not reads(redis.call('HGET', META, 'format')) then return NEWER end
local reply = { '0' }
local lines = {} -- what the text of a lease contains that holds the message
for i = 2, #ARGV do lines[i - 1] = '\n' .. ARGV[i] end
local cursor, bytes, leases = ARGV[1], 0, 0
repeat
  local step = redis.call('HSCAN', LEASES, cursor, 'COUNT', 100)
  cursor = step[1]
  for i = 1, #step[2], 2 do
    local text = step[2][i + 1]
    bytes = bytes + #text * #lines
    leases = leases + 1
    for _, line in ipairs(lines) do
      if string.find(text, line, 1, true) then
        reply[#reply + 1] = text
        reply[#reply + 1] = redis.call('ZSCORE', LEASE_DEADLINES, step[2][i])
        break
      end
    end
  end
until cursor == '0' or leases >= 1000 or bytes >= 1048576
reply[1] = cursor
return reply
