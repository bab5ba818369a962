--@include not_after
-- The entries of LANES; see _lanes.lua.

-- lane_mark returns the character between a key and a place in a lane of a class.
local function lane_mark(class)
  return string.char(class - 1)
end

-- lane_entry returns the entry of a message in a lane of a key, given its place.
local function lane_entry(name, class, us, id)
  return name .. lane_mark(class) .. string.format('%017.0f', us) .. id
end

-- lane_range returns between which members of LANES the entries of a key are, of all its lanes if there is no class.
local function lane_range(name, class)
  return '[' .. name .. lane_mark(class or 1), '(' .. name .. string.char(class or 3)
end

-- next_lanes returns where the lanes of the next key begin behind an entry, as ZRANGE takes it, and the key of the
-- entry. The key is nil, and the next entry follows, if the entry is damaged and in no lane.
local function next_lanes(entry)
  local name = string.match(entry, '^%C*')
  if (string.byte(entry, #name + 1) or 3) >= 3 then return '(' .. entry end
  return '[' .. name .. '\3', name
end

-- first_entry returns the first entry of a key in its lane of a class, in all its lanes if there is no class; nil for
-- none.
local function first_entry(name, class)
  local from, to = lane_range(name, class)
  return redis.call('ZRANGE', LANES, from, to, 'BYLEX', 'LIMIT', 0, 1)[1]
end

-- next_class returns the class of the first entry of a key in its lanes; nil for none.
local function next_class(name)
  local class, place, id
  for other = 1, 3 do
    local entry = first_entry(name, other)
    if entry then
      local at, its_id = tonumber(string.sub(entry, #name + 2, #name + 18)) or 0, string.sub(entry, #name + 19)
      if not class or at < place or at == place and not not_after(id, its_id) then
        class, place, id = other, at, its_id
      end
    end
  end
  return class
end
