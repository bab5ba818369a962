#!lua flags=no-writes
--- Reads messages by id, as many as fit in a reply.
-- ARGV   ids
-- Reply  {now, for each id read: {value or false, due or false, time of death or false, record or false}}; NEWER
--@include keys
--@include format
--@include clock
--@include buckets
--@flow
--@include sorted
--@end
local format, packed = unpack(redis.call('HMGET', META, 'format', 'packed_messages'))
if not reads(format) then return NEWER end
local buckets = open_buckets(packed)
local reply, bytes = { (read_clock()) }, 0
for i, id in ipairs(ARGV) do
  if i > 1 and bytes + redis.call('HSTRLEN', MESSAGES, id) > PAGE_BYTES then break end
  local value = redis.call('HGET', MESSAGES, id)
  if value then
    local record = redis.call('HGET', RECORDS, id)
    bytes = bytes + #value + #(record or '')
    local due, died = redis.call('ZSCORE', DUE, id), redis.call('ZSCORE', DEAD, id)
    if not due and not died then
      due = buckets.packed > 0 and buckets.find(id, value)
      due = due and string.format('%.0f', due)
    end
--@flow
    due = due_text_in(due)
--@end
    reply[i + 1] = { value, due or false, died, record }
  else
    reply[i + 1] = { false, false, false, false }
  end
end
return reply
