-- speed_up_rehash is called for each send of a number of messages. Redis doubles the table of a hash once it has as
-- many fields as slots, and then moves one slot at each access. Most of these slots are in no CPU cache, so claims and
-- acks cost twice as much until all have moved. While a large hash is being doubled, each sent message therefore moves
-- three extra slots by looking up a field that no message has. Together with the three accesses of the send itself, the
-- move is over after a sixth more messages. After that the lookups are cheap.
local function speed_up_rehash(count)
  local fields = redis.call('HLEN', MESSAGES)
  if fields < LARGE_HASH then return end
  local _, bits = math.frexp(fields)
  if fields < 1.2 * 2 ^ (bits - 1) then
    local none = {}
    for i = 1, 3 * count do none[i] = '' end
    redis.call('HMGET', MESSAGES, unpack(none))
  end
end
