-- Collects writes while a script checks, and executes them at its end. Every key was read before, so that a key of
-- the wrong type fails the script before its first write. Lists have at most 2 * MAX_BATCH items, well below the
-- limit of unpack.
local changed = {}

-- set_record sets the new record of a message, nil for none.
local function set_record(id, value)
  changed[id] = value or false
end

-- current_record returns the record of a message as this script will leave it, given the stored one.
local function current_record(id, stored)
  if changed[id] == nil then return stored end
  return changed[id]
end

local function write(command, key, list)
  for i = 1, #list, 4000 do
    redis.call(command, key, unpack(list, i, math.min(i + 3999, #list)))
  end
end

local function write_records()
  local set, unset = {}, {}
  for id, value in pairs(changed) do
    if value then
      set[#set + 1] = id
      set[#set + 1] = value
    else
      unset[#unset + 1] = id
    end
  end
  write('HSET', TRIES, set)
  write('HDEL', TRIES, unset)
end
