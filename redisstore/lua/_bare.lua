-- bare is the envelope in a value of MSG. A message that was ever far has byte 128 and its due time then, in six bytes,
-- before it; see _far.lua.
local function bare(value)
  if value and #value >= 7 and string.byte(value) == 128 then return string.sub(value, 8) end
  return value
end
