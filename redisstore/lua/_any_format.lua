-- writes is that of _format.lua for scripts that work on queues of every format: with a flow, plain, or not there. It
-- raises the previous format to the plain one.
local function writes(format)
  if not format or format == FLOW_FORMAT or format == PLAIN_FORMAT then return true end
  if format ~= PREVIOUS_FORMAT then return false end
  redis.call('HSET', META, 'format', PLAIN_FORMAT)
  return true
end
