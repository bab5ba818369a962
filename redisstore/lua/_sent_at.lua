-- find_sent_at returns the position of the time of sending in the value of a message, six bytes with ms since 1970, or
-- nil if there is none. See internal/envelope.
local function find_sent_at(value)
  local at, flags = 1, string.byte(value) or 128
  if flags == 128 and #value >= 7 then -- after the prefix of a packed message
    at = 8
    flags = string.byte(value, at) or 128
  end
  if flags >= 128 or flags % 64 < 32 then return end
  local from = at + 1
  for bit, width in ipairs({ 2, 6, 6, 4, 6 }) do
    if flags % 2 ^ bit >= 2 ^ (bit - 1) then from = from + width end
  end
  if from + 5 <= #value then return from end
end
