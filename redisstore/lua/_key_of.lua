-- key_of returns the key in the value of a message, '' for none, and the class of its urgency: 1 normal, 2 high, 3 low.
-- It is the first header behind the group, and the name of the header tells the class; see internal/envelope. The value
-- is false if the message is missing.
local function key_of(value)
  value = value or ''
  local at, flags = 1, string.byte(value) or 128
  if flags == 128 and #value >= 7 then -- after the prefix of a packed message
    at = 8
    flags = string.byte(value, at) or 128
  end
  if flags < 64 or flags >= 128 then return '', 1 end
  local from = at + 2
  if flags > 64 then
    for bit, width in ipairs({ 2, 6, 6, 4, 6, 8 }) do
      if flags % 2 ^ bit >= 2 ^ (bit - 1) then from = from + width end
    end
  end
  local length, low, high = string.byte(value, from, from + 2)
  if length == 0 and low then
    from = low < 128 and from + 2 + low or from + 3 + low - 128 + (high or 0) * 128
    length, low = string.byte(value, from, from + 1)
  end
  if length ~= 1 or not low or low < 1 or low > 3 then return '', 1 end
  local key = string.sub(value, from + 3, from + 2 + (string.byte(value, from + 2) or 0))
  return string.find(key, '%c') and '' or key, low
end
