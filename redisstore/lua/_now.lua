-- The server's time in seconds, ms and us, as variables: scripts for the common case define no functions.
local time = redis.call('TIME')
local seconds = time[1]
local now_us = seconds * 1000000 + time[2]
local now = (now_us - now_us % 1000) / 1000
