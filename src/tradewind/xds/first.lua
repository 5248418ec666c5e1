-- Notes when a stream's first token passed, and tells the picker with the next question: that is when it matters.
-- State is per Envoy worker; a report that never finds a question is made good by the access log at the request's end.

local MAX_NOTES = 512  -- beyond it the oldest are dropped; the picker then learns of them from the access log

local ids, times, count = {}, {}, 0

function envoy_on_request(h)
  if count == 0 then return end
  local now, notes = h:timestamp(), {}
  for i = 1, count do notes[i] = ids[i] .. ":" .. math.max(0, now - times[i]) end
  ids, times, count = {}, {}, 0
  h:headers():replace("x-tw-first", table.concat(notes, ","))
end

-- For answer.lua, at the first bytes of a stream.
function first_token(h)
  local told = h:streamInfo():dynamicMetadata():get("envoy.filters.http.ext_authz")
  local id = told and told["x-tw-decision"]
  if not id then return end
  if count >= MAX_NOTES then
    table.remove(ids, 1)
    table.remove(times, 1)
    count = count - 1
  end
  count = count + 1
  ids[count], times[count] = id, h:timestamp()
end
