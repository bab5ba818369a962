#!lua flags=no-writes
--- Searches a part of the open leases for messages, about two milliseconds' worth per call.
-- ARGV   1 HSCAN cursor, then ids
-- Reply  {next cursor, texts of leases that may hold one of the messages and their deadlines or false, alternating};
--        NEWER
--@include keys
--@include format
if not reads(redis.call('HGET', META, 'format')) then return NEWER end
local wanted = {}
for i = 2, #ARGV do wanted[ARGV[i]] = true end

-- any_wanted reports whether a lease has one of the ids. Several ids are compared with each line, because a search for
-- each of them would take as long as all of them together.
local function any_wanted(text)
  if #ARGV < 6 then
    for i = 2, #ARGV do
      if string.find(text, '\n' .. ARGV[i], 1, true) then return true end
    end
    return false
  end
  for id in string.gmatch(text, '\n([^\t\n]+)') do
    if wanted[id] then return true end
  end
  return false
end

local reply = { '0' }
local cursor, bytes, leases, count = ARGV[1], 0, 0, 4
repeat
  local step = redis.call('HSCAN', LEASES, cursor, 'COUNT', count)
  cursor = step[1]
  for i = 1, #step[2], 2 do
    local text = step[2][i + 1]
    bytes = bytes + #text
    leases = leases + 1
    if any_wanted(text) then
      reply[#reply + 1], reply[#reply + 2] = text, redis.call('ZSCORE', LEASE_DEADLINES, step[2][i])
    end
  end
  -- The next step reads the rest if its leases are as long as the leases so far.
  count = math.max(1, math.min(100, math.floor((MAX_SCANNED - bytes) / math.max(1, bytes / math.max(1, leases)))))
until cursor == '0' or leases >= 1000 or bytes >= MAX_SCANNED
reply[1] = cursor
return reply
