-- run_id returns the id of the run of the server, "" if it is not known. A cursor has a meaning only in the server that
-- gave it, as long as it runs: each one has its own order of fields.
local function run_id()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
end
