-- A lease is a text of lines, an empty one first. A line that begins with a tab is a due time, of the messages in the
-- lines below it; any other is a message: its id, followed, where they are not the usual ones, by a tab and the epoch,
-- and a tab and the highest number of attempts. It lists exactly what it holds: what is settled leaves it, so the text
-- only ever becomes shorter. A token names a message as its holder does: the id, and a tab and the epoch where
-- that is not zero.
local function each_held(text)
  local lines, due = string.gmatch(text, '[^\n]+'), nil
  return function()
    local line = lines()
    while line and string.byte(line) == 9 do
      due, line = string.sub(line, 2), lines()
    end
    if not line or not string.find(line, '\t', 1, true) then return line, due, '', '' end
    local id, epoch, max = string.match(line, '^([^\t]+)\t(%d*)\t(%d*)$')
    return id, due, epoch, max
  end
end

-- held_line is the line of a message.
local function held_line(id, epoch, max)
  if max == '' and epoch == '' then return id end
  return id .. '\t' .. epoch .. '\t' .. max
end

-- lease_text joins the lines of messages, in their order, given the due time of each.
local function lease_text(held, dues)
  local lines, due = { '' }, nil
  for i, line in ipairs(held) do
    if dues[i] ~= due then
      due = dues[i]
      lines[#lines + 1] = '\t' .. due
    end
    lines[#lines + 1] = line
  end
  lines[#lines + 1] = ''
  return table.concat(lines, '\n')
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
        local held, dues = {}, {}
        for id, due, epoch, max in each_held(l.text) do
          local token = id
          if epoch ~= '' and epoch ~= '0' then token = id .. '\t' .. epoch end
          if l.held[token] then
            held[#held + 1] = held_line(id, epoch, max)
            dues[#dues + 1] = due
          end
        end
        redis.call('HSET', LEASE, lease, lease_text(held, dues))
      end
    end
  end
end
