--@include record_changes
--@include earliest
--@include waiting
-- new_successors returns the successors, at first none, that become live because the hold of the messages before them
-- ends by an ack.
local function new_successors(changes, now)
  local entries, first, anyone = {}, nil, false
  local successors = {}

  -- take adds the successor of a held message with the given record, and reports whether there is one.
  function successors.take(id, record)
    local epoch, _, _, refcount, rest = parse_record(record)
    local due = successor_due(rest)
    if not due then return false end
    changes.succeed(id, epoch, refcount)
    entries[#entries + 1], entries[#entries + 2] = due, id
    first = math.min(first or math.huge, tonumber(due))
    return true
  end

  -- read reads the keys for write, and reports whether there are any successors.
  function successors.read()
    if not first then return false end
    anyone = is_earliest(redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES'), first) and redis.call('ZCARD', WAKE) > 0
    return true
  end

  function successors.write()
    if anyone then notify(first, now) end
    write('ZADD', DUE, entries)
  end

  return successors
end
