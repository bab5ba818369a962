-- GROUPS holds the ids of all messages in a group, with the number of the group as their score. So the ids of a group
-- are adjacent and in order, and an id is removed without reading its message. Two names hardly ever have the same
-- number; a script that lists a group compares the names.

-- group_number returns 48 bits of a hash of a group's name.
local function group_number(name)
  local hash = redis.sha1hex(name)
  return tonumber(string.sub(hash, 1, 6), 16) * 16777216 + tonumber(string.sub(hash, 7, 12), 16)
end

-- group_name returns the group in an envelope, see internal/envelope, or nil if there is none. The group is the first
-- header, with an empty name.
local function group_name(envelope)
  local flags = string.byte(envelope) or 128
  if flags < 64 or flags >= 128 then return end
  local from = 3 -- the length of the first name, if the headers follow the flags and take one byte for their number
  for bit, width in ipairs({ 2, 6, 6, 4, 6, 8 }) do
    if flags % 2 ^ bit >= 2 ^ (bit - 1) then from = from + width end
  end
  local name, low, high = string.byte(envelope, from, from + 2)
  if name ~= 0 or not low then return end
  if low < 128 then return string.sub(envelope, from + 2, from + 1 + low) end
  return string.sub(envelope, from + 3, from + 2 + low - 128 + (high or 0) * 128)
end

-- group_of returns the number of the group in an envelope, or nil if there is none.
local function group_of(envelope)
  local name = group_name(envelope)
  return name and group_number(name)
end
