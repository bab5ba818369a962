-- due_at parses a due time: ms since 1970, or "+ms" from now, in us. A delay counts from the end of the current
-- millisecond, so it is never short.
local function due_at(now_us, text)
  local number = tonumber(text)
  if string.byte(text) ~= 43 then return number end
  if number <= 0 then return math.floor(now_us / 1000) end
  return math.ceil(now_us / 1000) + number
end
