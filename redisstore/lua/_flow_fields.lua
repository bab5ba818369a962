-- flow_fields returns the fields of META with the limits of a queue, in the order in which set_flow.lua and create.lua
-- take them; flow_keyed is "1" there.
local function flow_fields()
  return { 'flow_concurrency', 'flow_n', 'flow_per_us', 'flow_burst', 'flow_keyed', 'flow_key_concurrency',
    'flow_key_n', 'flow_key_per_us', 'flow_key_burst', 'flow_key_weight', 'flow_key_order', 'flow_urgency' }
end
