-- A lease is a text of lines, starting with an empty one. A line that starts with a tab is the due time of the
-- messages in the lines below it. Any other line is a message: its id and, unless both are at their defaults, a tab
-- and the epoch, and a tab and the maximum number of attempts. The text lists exactly the messages that are held: a
-- settle removes its lines, so the text only ever becomes shorter. A token names a message as its holder does: the
-- id, and a tab and the epoch unless that is zero.
local function each_entry(text)
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

-- entry_line returns the line of a message.
local function entry_line(id, epoch, max)
  if max == '' and epoch == '' then return id end
  return id .. '\t' .. epoch .. '\t' .. max
end

-- lease_text joins the lines of messages, in order, given the due time of each.
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

-- load_lease reads a lease once. An expired or ended lease has no text.
local function load_lease(lease, now)
  local l = leases[lease]
  if l then return l end
  l = { held = {}, left = 0 }
  local deadline = redis.call('ZSCORE', EXPIRY, lease)
  local text = redis.call('HGET', LEASE, lease)
  if text and deadline and tonumber(deadline) > now then
    l.text = text
    for id, due, epoch, max in each_entry(text) do
      local token = id
      if epoch ~= '' and epoch ~= '0' then token = id .. '\t' .. epoch end
      l.held[token] = { id = id, due = due, epoch = tonumber(epoch) or 0, max = tonumber(max) or DEFAULT_ATTEMPTS }
      l.left = l.left + 1
    end
  end
  leases[lease] = l
  return l
end

-- remove_entry removes a message from a loaded lease.
local function remove_entry(l, token)
  l.held[token] = nil
  l.left = l.left - 1
  l.changed = true
end

-- drop_stale drops an entry whose epoch is outdated because the message was cancelled: it removes the entry from the
-- lease and decrements the refcount of the record.
local function drop_stale(l, token, h, recorded)
  remove_entry(l, token)
  set_record(h.id, drop_ref(recorded))
end

-- write_leases writes back the changed leases, keeping the order of their messages.
local function write_leases()
  for lease, l in pairs(leases) do
    if l.changed then
      if l.left == 0 then
        redis.call('HDEL', LEASE, lease)
        redis.call('ZREM', EXPIRY, lease)
      else
        local held, dues = {}, {}
        for id, due, epoch, max in each_entry(l.text) do
          local token = id
          if epoch ~= '' and epoch ~= '0' then token = id .. '\t' .. epoch end
          if l.held[token] then
            held[#held + 1] = entry_line(id, epoch, max)
            dues[#dues + 1] = due
          end
        end
        redis.call('HSET', LEASE, lease, lease_text(held, dues))
      end
    end
  end
end
