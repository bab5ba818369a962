--@include lease
--@flow
--@include slots
--@end
-- open_leases returns the leases of messages that a script settles one by one, at first none. A token names a message
-- as its holder does: the id, and a tab and the epoch unless that is zero. changes are the script's changes to records.
local function open_leases(now, changes)
  local loaded = {} -- by lease id
  local leases = {}
--@flow
  leases.freed = 0 -- messages that have left leases that count
  leases.freed_keys = {} -- those of each key that have left leases that count for keys
  leases.holds = {} -- as free_keys takes them
  local heads = read_heads()
  leases.heads = heads
--@end

  local function token_of(id, epoch)
    if epoch ~= '' and epoch ~= '0' then return id .. '\t' .. epoch end
    return id
  end

  -- load reads a lease once. An expired or ended lease holds nothing.
  function leases.load(lease)
    local l = loaded[lease]
    if l then return l end
    l = { held = {}, left = 0 } -- held: messages by token
    local deadline = redis.call('ZSCORE', LEASE_DEADLINES, lease)
    local text = redis.call('HGET', LEASES, lease)
    if text and deadline and tonumber(deadline) > now then
      l.text = text
--@flow
      l.head, l.keyed = head_of(text, heads), counts_keys(text, heads)
      for id, due, epoch, max, key in each_entry(text) do
        l.held[token_of(id, epoch)] = { id = id, due = due, epoch = tonumber(epoch) or 0,
          max = tonumber(max) or DEFAULT_ATTEMPTS, key = key }
--@end
--@plain
      for id, due, epoch, max in each_entry(text) do
        l.held[token_of(id, epoch)] = { id = id, due = due, epoch = tonumber(epoch) or 0,
          max = tonumber(max) or DEFAULT_ATTEMPTS }
--@end
        l.left = l.left + 1
      end
    end
    loaded[lease] = l
    return l
  end

  -- remove removes a message from a loaded lease.
  function leases.remove(l, token)
--@flow
    local key = l.held[token].key
    if key and l.keyed then leases.freed_keys[key] = (leases.freed_keys[key] or 0) + 1 end
--@end
    l.held[token] = nil
    l.left = l.left - 1
--@flow
    if l.head then leases.freed = leases.freed + 1 end
--@end
    l.changed = true
  end

--@flow
  -- hold has a message of a loaded lease hold its key, if it counts; see hold_key.
  function leases.hold(l, h, letter)
    hold_key(leases.holds, heads, l.keyed and h.key, letter, h.id, now)
  end

--@end
  -- drop_stale drops an entry with an outdated epoch, because the message was cancelled: it removes the entry from the
  -- lease and decrements the refcount of the record.
  function leases.drop_stale(l, token, record)
    changes.drop_ref(l.held[token].id, record)
    leases.remove(l, token)
  end

  -- write writes back the changed leases, keeping the order of their messages.
  function leases.write()
    for lease, l in pairs(loaded) do
      if l.changed and l.left == 0 then
        redis.call('HDEL', LEASES, lease)
        redis.call('ZREM', LEASE_DEADLINES, lease)
      elseif l.changed then
        local held, dues, keys = {}, {}, {}
        for id, due, epoch, max, key in each_entry(l.text) do
          if l.held[token_of(id, epoch)] then
            held[#held + 1] = entry_line(id, epoch, max)
            dues[#held], keys[#held] = due, key
          end
        end
        local text = lease_text(held, dues, keys)
        if l.head then text = l.head .. string.sub(text, 2) end
        redis.call('HSET', LEASES, lease, text)
      end
    end
  end

  return leases
end
