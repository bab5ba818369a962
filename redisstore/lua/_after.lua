-- after returns the time of a rate that is k intervals after a time.
local function after(rate, us, rem, k)
  rem = rem + k * (rate.per % rate.n)
  return us + k * math.floor(rate.per / rate.n) + math.floor(rem / rate.n), rem % rate.n
end
