--@include not_after

-- first_after returns the first rank from low on, below high, with a member that comes after an id, or high if there is
-- none. It searches by halves, since the id itself may have gone. The members have equal scores.
local function first_after(key, low, high, id)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if not_after(redis.call('ZRANGE', key, middle, middle)[1], id) then low = middle + 1 else high = middle end
  end
  return low
end
