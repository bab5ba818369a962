-- A lease is a text of an empty line and two lines for each message it holds: the id, and the due time followed,
-- where they are not the usual ones, by a blank and the epoch, and a blank and the highest number of attempts.
-- It lists exactly what it holds: what is settled leaves it. A token names a message as its holder does: the id, and a
-- tab and the epoch where that is not zero.
local function each_held(text)
  return string.gmatch(text, '([^\n]+)\n(%d+) ?(%d*) ?(%d*)')
end

local function lease_text(lines)
  return '\n' .. table.concat(lines, '\n') .. '\n'
end

local leases = {}

-- load reads a lease once. A lease that has expired or ended has no text.
local function load(lease, now)
  local l = leases[lease]
  if l then return l end
  l = { held = {}, left = 0 }
  local deadline = redis.call('ZSCORE', EXPIRY, lease)
  local text = redis.call('HGET', LEASE, lease)
  if text and deadline and tonumber(deadline) > now then
    l.text = text
    for id, due, epoch, max in each_held(text) do
      local token = id
      if epoch ~= '' and epoch ~= '0' then token = id .. '\t' .. epoch end
      l.held[token] = { id = id, due = due, epoch = tonumber(epoch) or 0, max = tonumber(max) or DEFAULT_ATTEMPTS }
      l.left = l.left + 1
    end
  end
  leases[lease] = l
  return l
end

-- drop takes a message out of a lease that was loaded.
local function drop(l, token)
  l.held[token] = nil
  l.left = l.left - 1
  l.changed = true
end

-- let_go: the lease lists the id with an epoch that is past, because the message was cancelled. The lease
-- forgets it, and the record has a pin less.
local function let_go(l, token, h, recorded)
  drop(l, token)
  keep(h.id, unpin(recorded))
end

-- write_leases writes back the leases that changed, in the order their messages had.
local function write_leases()
  for lease, l in pairs(leases) do
    if l.changed then
      if l.left == 0 then
        redis.call('HDEL', LEASE, lease)
        redis.call('ZREM', EXPIRY, lease)
      else
        local lines = {}
        for id, due, epoch, max in each_held(l.text) do
          local token = id
          if epoch ~= '' and epoch ~= '0' then token = id .. '\t' .. epoch end
          if l.held[token] then
            lines[#lines + 1] = id
            if max ~= '' then due = due .. ' ' .. epoch .. ' ' .. max
            elseif epoch ~= '' then due = due .. ' ' .. epoch end
            lines[#lines + 1] = due
          end
        end
        redis.call('HSET', LEASE, lease, lease_text(lines))
      end
    end
  end
end
