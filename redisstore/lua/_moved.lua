-- leave_sign leaves a sign in place of a queue, which ends after some ms, "0" for never, and tells processes that wait
-- for the queue that it has moved from its name. WAKE is the key that listed them.
local function leave_sign(META, PROPERTIES, WAKE, sign, ms, processes)
  redis.call('HSET', META, 'format', SIGN, 'sign', sign)
  if ms ~= '0' then
    redis.call('PEXPIRE', META, ms)
  else
    redis.call('HSET', PROPERTIES, SIGN_PROPERTY, '') -- see properties.go
  end
  for _, process in ipairs(processes) do redis.pcall('PUBLISH', process, 'moved ' .. WAKE) end
end
