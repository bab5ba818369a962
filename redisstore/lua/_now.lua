-- The server's time in ms and in us, as variables: scripts for the common case define no functions.
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = (now_us - now_us % 1000) / 1000
