-- Redis doubles the table of a hash that has as many fields as slots, and then moves a slot at each access, most of which are in
-- no cache: a claim and an ack of a message cost twice as much until all are moved. So while a large one is being doubled, each
-- message that is sent has three slots more moved, by looking for a field that no message has. With the three accesses that a
-- send makes anyway, it is over after a sixth more messages. Where it is, that costs little.
local fields = redis.call('HLEN', MSG)
if fields >= LARGE_HASH then
  local _, bits = math.frexp(fields)
  if fields < 1.2 * 2 ^ (bits - 1) then
    local none = {}
    for i = 1, 3 * count do none[i] = '' end
    redis.call('HMGET', MSG, unpack(none))
  end
end
