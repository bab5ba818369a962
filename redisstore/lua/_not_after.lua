-- not_after compares ids by bytes, as Redis orders members of equal score; Lua's comparison uses the server's locale.
local function not_after(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a <= #b
end
