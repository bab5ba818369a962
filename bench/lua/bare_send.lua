local z, h, k = {}, {}, 0
for i = 1, #ARGV, 3 do
  k = k + 2
  z[k-1], z[k] = ARGV[i], ARGV[i+1]
  h[k-1], h[k] = ARGV[i+1], ARGV[i+2]
end
redis.call('HSET', KEYS[2], unpack(h))
redis.call('ZADD', KEYS[1], unpack(z))
return k
