-- Reads token counts and in-band errors of answers in passing, for the access log: "prompt,completion,cached,error",
-- and after it ",id" of a response that the engine stores.
-- Envoy's own sse_to_metadata is not used: with the JSON parser of 1.40, one event such as "data: null" ends Envoy.

local byte, find, match, sub = string.byte, string.find, string.match, string.sub

local TAIL_BYTES = 1024   -- the usage of a whole JSON answer stands at its end
local SMALL_BYTES = 65536 -- an answer of known length up to this is read at once, a longer one as it passes
local HEAD_BYTES = 512    -- where the id of a stored response stands
local MAX_ID_BYTES = 128
local CARRY_BYTES = 1024  -- of a stream, kept for what is split over two chunks

local function number_after(text, name, from)
  local _, stop = find(text, name, from, true)
  local digits = stop and match(text, "^%s*:%s*(%d+)", stop + 1)
  return digits and #digits < 10 and digits or nil -- more is no count of tokens
end

-- Where the next `"name"` after `from` ends that is not inside a string; nil if there is none.
local function key_after(text, quoted, from)
  local at, stop = find(text, quoted, from, true)
  while at and byte(text, at - 1) == 92 do at, stop = find(text, quoted, stop + 1, true) end
  return at and stop
end

-- Token counts of every "usage", the later over the earlier.
local function usage_of(text, prompt, completion, cached)
  local from = key_after(text, '"usage"', 1)
  while from do
    local open = find(text, "^%s*:%s*{", from + 1)
    local stop = key_after(text, '"usage"', from + 1)
    if open then
      local part = stop and sub(text, from, stop) or sub(text, from)
      prompt = number_after(part, '"prompt_tokens"', 1) or number_after(part, '"input_tokens"', 1) or prompt
      completion = number_after(part, '"completion_tokens"', 1) or number_after(part, '"output_tokens"', 1) or completion
      cached = number_after(part, '"cached_tokens"', 1) or cached
    end
    from = stop
  end
  return prompt, completion, cached
end

-- The code of the last "error" that is an object or a text, 0 if it names none; nil if there is no error.
local function error_of(text)
  local from, code = key_after(text, '"error"', 1), nil
  while from do
    if find(text, '^%s*:%s*["{]', from + 1) then code = number_after(text, '"code"', from) or "0" end
    from = key_after(text, '"error"', from + 1)
  end
  return code
end

-- The id of a stored response, by which a follow-up finds the engine that holds it; it stands at the beginning.
local function stored_id(text)
  return match(text, '"id"%s*:%s*"(resp_[%w_%-]+)"')
end

local function tell(h, prompt, completion, cached, code, stored)
  local answer = (prompt or "") .. "," .. (completion or "") .. "," .. (cached or "") .. "," .. (code or "")
  if stored and #stored <= MAX_ID_BYTES then answer = answer .. "," .. stored end
  -- Not metadata, which the access log would copy and encode whole, beside the line.
  h:streamInfo():filterState():set("tradewind.answer", "envoy.string", answer)
end

-- The last TAIL_BYTES and the first HEAD_BYTES of an answer.
local function ends_of(h, length)
  if length and length <= SMALL_BYTES then
    local body = h:body()
    local n = body and body:length() or 0
    if n == 0 then return "", "" end
    return body:getBytes(math.max(0, n - TAIL_BYTES), math.min(n, TAIL_BYTES)), body:getBytes(0, math.min(n, HEAD_BYTES))
  end
  local tail, head = "", nil
  for chunk in h:bodyChunks() do
    local n = chunk:length()
    if not head and n > 0 then head = chunk:getBytes(0, math.min(n, HEAD_BYTES)) end
    if n >= TAIL_BYTES then
      tail = chunk:getBytes(n - TAIL_BYTES, TAIL_BYTES)
    elseif n > 0 then
      tail = sub(tail .. chunk:getBytes(0, n), -TAIL_BYTES)
    end
  end
  return tail, head or ""
end

-- Counts come in one event or in several (Anthropic's, and usage with each chunk): the newest of each stands.
local function read_stream(h)
  local prompt, completion, cached, code, stored
  local carry, first, begun = "", first_token, false
  for chunk in h:bodyChunks() do
    local n = chunk:length()
    if n > 0 then
      if first then first(h) end
      first = nil
      if not begun then
        stored, begun = stored_id(chunk:getBytes(0, math.min(n, HEAD_BYTES))), true
        if stored then tell(h, nil, nil, nil, nil, stored) end
      end
      local text = carry .. chunk:getBytes(0, n)
      local used = find(text, '"usage"', 1, true)
      local failed = find(text, '"error"', 1, true)
      if used then prompt, completion, cached = usage_of(text, prompt, completion, cached) end
      if failed then code = error_of(text) or code end
      if (used or failed) and (prompt or completion or code) then tell(h, prompt, completion, cached, code, stored) end
      carry = #text > CARRY_BYTES and sub(text, -CARRY_BYTES) or text
    end
  end
end

-- Holds nothing back that a client could use early.
function envoy_on_response(h)
  local headers = h:headers()
  local kind = headers:get("content-type")
  if not kind then return end
  if sub(kind, 1, 17) == "text/event-stream" then return read_stream(h) end
  if sub(kind, 1, 16) ~= "application/json" then return end
  local tail, head = ends_of(h, tonumber(headers:get("content-length")))
  local prompt, completion, cached = usage_of(tail)
  local stored = stored_id(head)
  if prompt or completion or stored then tell(h, prompt, completion, cached, nil, stored) end
end
