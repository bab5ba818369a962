--@include record
--@include write
-- RECORDS holds a placeholder under an empty id while it holds anything else: a number, a tab, and a text. The number
-- is the sum of all refcounts and the count of successors, so that acks need no lookups while no lease lists a
-- cancelled or followed message. The text is too long for the compact encoding of a small hash: each lookup in it would
-- search all records, and claims look up hundreds of ids.
--
-- RECORDS also has the original of each held message that has a successor, as long as the hold lasts, because a
-- repeated claim returns it: under a tab and the id, its failed attempts, a tab, and its former value in MESSAGES,
-- which has the successor. It is the original that moves, so that the end of a hold copies nothing: a call handles
-- hundreds.

-- remove_placeholder removes the placeholder if nothing else is left.
local function remove_placeholder()
  if redis.call('HLEN', RECORDS) == 1 then redis.call('HDEL', RECORDS, '') end
end

-- read_refs returns the number in the placeholder, or nil if there is none.
local function read_refs()
  return tonumber(string.match(redis.call('HGET', RECORDS, '') or '', '^(%d+)\t'))
end

-- successor_due returns the due time of a successor, as text, given the rest of its record. It returns nil for other
-- messages.
local function successor_due(rest)
  return string.match(rest, '^([^\t]*)\tfollows\t')
end

-- read_original returns the value and the record of a held message before it got a successor. The value is false if it
-- is not known, because a version of Later that did not keep it stored the successor.
local function read_original(id, epoch)
  local original = redis.call('HGET', RECORDS, '\t' .. id) or ''
  local attempts = string.match(original, '^(%d+)\t')
  return attempts and string.sub(original, #attempts + 2) or false, format_record(epoch, attempts or 0, '0', 0, '')
end

-- new_record_changes returns an empty collection of changes to records, which a script writes at its end.
local function new_record_changes()
  local changed, refs = {}, 0 -- changed: by id the new record, or false for none; refs: change of the placeholder
  local changes = {}

  -- set sets the new record of a message, nil for none.
  function changes.set(id, record)
    changed[id] = record or false
  end

  -- current returns the record of a message as this script will leave it, given the stored one.
  function changes.current(id, stored)
    if changed[id] == nil then return stored end
    return changed[id]
  end

  -- remove removes the record of a removed message, or sets a tombstone while old leases still list its id.
  function changes.remove(id, epoch, refcount)
    changed[id] = refcount > 0 and format_record(epoch, 'x', '0', refcount, '')
  end

  -- cancel sets the tombstone of a message that is cancelled while it is leased, and of its successor.
  function changes.cancel(id, record)
    local epoch, _, _, refcount, rest = parse_record(record)
    if successor_due(rest) then
      changed['\t' .. id] = false
    else
      refs = refs + 1
    end
    changes.remove(id, epoch + 1, refcount + 1)
  end

  -- follow sets the record of a successor, which is due at a time in ms and takes the place of a value in MESSAGES.
  function changes.follow(id, record, due, value)
    local epoch, attempts, _, refcount, rest = parse_record(record)
    if not successor_due(rest) then
      refs = refs + 1
      changed['\t' .. id] = attempts .. '\t' .. value
    end
    changed[id] = format_record(epoch, 0, '0', refcount, string.format('%.0f\tfollows\t\t', due))
  end

  -- succeed sets the record of a successor that becomes live: as if it had just been sent.
  function changes.succeed(id, epoch, refcount)
    refs = refs - 1
    changed['\t' .. id] = false
    changed[id] = refcount > 0 and format_record(epoch, 0, '0', refcount, '')
  end

  -- drop_ref changes a record after a lease has dropped an entry with an outdated epoch.
  function changes.drop_ref(id, record)
    local epoch, attempts, delivered, refcount, rest = parse_record(record)
    if refcount > 0 then refs = refs - 1 end
    if attempts then
      changed[id] = format_record(epoch, attempts, delivered, refcount - 1, rest)
    else
      changes.remove(id, epoch, refcount - 1)
    end
  end

  function changes.write()
    local set, unset = {}, {}
    for id, record in pairs(changed) do
      if record then
        set[#set + 1], set[#set + 2] = id, record
      else
        unset[#unset + 1] = id
      end
    end
    if refs ~= 0 then
      redis.call('HSET', RECORDS, '', math.max(0, (read_refs() or 0) + refs) .. '\t' .. PLACEHOLDER)
    elseif set[1] then
      redis.call('HSETNX', RECORDS, '', '0\t' .. PLACEHOLDER)
    end
    write('HSET', RECORDS, set)
    write('HDEL', RECORDS, unset)
    if unset[1] then remove_placeholder() end
  end

  return changes
end
