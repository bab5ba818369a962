-- update_meta records in META that the queue exists and the needs of its messages. format, max_bytes and inspect are
-- the values in META, sent_max_bytes and sent_inspect ("1" or "0") describe the sent messages.
local function update_meta(format, max_bytes, inspect, sent_max_bytes, sent_inspect)
  if not format then
--@plain
    redis.call('HSET', META, 'format', FORMAT, 'max_envelope_bytes', sent_max_bytes)
--@end
--@flow
    redis.call('HSET', META, 'format', PLAIN_FORMAT, 'max_envelope_bytes', sent_max_bytes)
--@end
  elseif tonumber(sent_max_bytes) > tonumber(max_bytes or 0) then
    redis.call('HSET', META, 'max_envelope_bytes', sent_max_bytes)
  end
  if sent_inspect == '1' and not inspect then redis.call('HSET', META, 'inspect_envelopes', 1) end
end
