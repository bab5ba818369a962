-- read_clock returns the server's time in ms and in us.
local function read_clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000), time[1] * 1000000 + time[2]
end
