-- Each script that works on a queue first checks the queue's format, which META has. A queue of the previous format
-- only lacks additions of this version, so this version reads it as it is, and a script that changes the queue raises
-- the format first. Older programs refuse the queue from then on. See docs/redis-layout.md.

--@plain
-- reads reports whether this version can read a queue of a format, false or nil for a queue that does not exist.
local function reads(format)
  return not format or format == FORMAT or format == PREVIOUS_FORMAT
end

-- writes is reads for a script that changes the queue. It may write before the script has read all keys, because the
-- new format is right for any later step of the script, even if it then changes nothing.
local function writes(format)
  if format ~= PREVIOUS_FORMAT then return not format or format == FORMAT end
  redis.call('HSET', META, 'format', FORMAT)
  return true
end
--@end
--@flow
-- This is the rendering for queues with a flow, which have a format of their own and are created as plain ones.

-- reads reports whether this rendering can read a queue of a format; writes is the same.
local function reads(format)
  return format == FORMAT
end

local function writes(format)
  return format == FORMAT
end
--@end
