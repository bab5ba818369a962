-- tell_moved tells processes that wait for a queue that it has moved from its name. WAKE is the key that listed them.
local function tell_moved(processes, WAKE)
  for _, process in ipairs(processes) do redis.pcall('PUBLISH', process, 'moved ' .. WAKE) end
end
