-- Routes a request by the model in its body, and spreads each pool's requests over its cells by exact shares.
-- State is per Envoy worker and outlives route pushes, because this source does not change with them.

local byte, find, match, sub, gmatch = string.byte, string.find, string.match, string.sub, string.gmatch

collectgarbage("setpause", 400) -- what lives is some 100 KB: collect at four times that, not at twice

local MAX_ID_BYTES = 128
local MAX_MODEL_BYTES = 1024       -- longer than any name that a pool may have
local MAX_SCAN_STEPS = 8388608     -- bytes read one by one (all that is not inside a string)
local MAX_POOLS = 4096
local CREDIT_CELLS = 512           -- above this, golden ratio: O(log n) instead of O(n)
local GOLDEN = 0.6180339887498949
local JITTER = 0.1                 -- of one request, on the comparison only

-- Chance, different in every worker of every gateway: the clock, and where this process put a table.
local random, seeded = math.random, false
local function seed(h)
  math.randomseed((h:timestamp() + tonumber(match(tostring({}), "0x(%x+)") or "0", 16)) % 2147483648)
  seeded = true
end

-- Shares -------------------------------------------------------------------------------------------------------------

local pools, pool_count = {}, 0

-- Every cell earns its share with each request and pays 1 when it is picked: no cell gets two requests more than its
-- share in any run. The jitter keeps periodic traffic from always meeting the same of equal cells.
-- Reference: tradewind.core.lowdisc.
local function pick_by_credit(pool)
  local share, credit = pool.share, pool.credit
  local best, at = -math.huge, 0
  for i = 1, #share do
    local c = credit[i] + share[i]
    credit[i] = c
    local claim = c + JITTER * random()
    if claim > best then best, at = claim, i end
  end
  credit[at] = credit[at] - 1
  return pool.hosts[at]
end

local function pick_by_golden_ratio(pool)
  local u = (pool.u + GOLDEN) % 1
  pool.u = u
  local upto, low, high = pool.upto, 1, #pool.upto
  while low < high do
    local middle = math.floor((low + high) / 2)
    if u < upto[middle] then high = middle else low = middle + 1 end
  end
  return pool.hosts[low]
end

local function read_table(pool, text)
  local hosts, share, upto, sum = {}, {}, {}, 0
  for host, weight in gmatch(text, "([^=]+)=(%d+),") do
    local n = #hosts + 1
    hosts[n], share[n] = host, tonumber(weight)
    sum = sum + share[n]
    upto[n] = sum
  end
  for i = 1, #hosts do share[i], upto[i] = share[i] / sum, upto[i] / sum end
  pool.hosts, pool.share, pool.upto = hosts, share, upto
end

-- Cells that stay keep their credit, so that a push disturbs nobody; the sum stays 0.
local function carry_credit(pool, before)
  local credit, mean = {}, 0
  for i, host in ipairs(pool.hosts) do
    credit[i] = math.max(-2, math.min(2, before[host] or 0))
    mean = mean + credit[i] / #pool.hosts
  end
  for i = 1, #credit do credit[i] = credit[i] - mean end
  pool.credit = credit
end

local function load_table(pool, text, version)
  local before = {}
  for i, host in ipairs(pool.hosts or {}) do before[host] = pool.credit[i] end
  read_table(pool, text)
  carry_credit(pool, before)
  pool.version = version
  pool.pick = #pool.hosts > CREDIT_CELLS and pick_by_golden_ratio or pick_by_credit
  if not pool.u then -- first table: start anywhere, so that workers and gateways do not march in step
    pool.u = random()
    for _ = 1, random(0, 99) do pool.pick(pool) end
  end
end

local function new_pool(model)
  if pool_count >= MAX_POOLS then pools, pool_count = {}, 0 end
  local pool = {}
  pools[model], pool_count = pool, pool_count + 1
  return pool
end

-- JSON ---------------------------------------------------------------------------------------------------------------

-- Where the string that begins at `from` (after its quote) has its closing quote.
local function string_end(s, from)
  local q = find(s, '"', from, true)
  while q do
    local b = q - 1
    while b >= from and byte(s, b) == 92 do b = b - 1 end
    if (q - b) % 2 == 1 then return q end -- an even number of backslashes before it
    q = find(s, '"', q + 1, true)
  end
end

-- Where the object or array that opens just before `i` closes.
local function nested_end(s, i)
  local depth, steps, n = 1, 0, #s
  while i <= n do
    local c = byte(s, i)
    if c == 34 then
      i = string_end(s, i + 1)
      if not i then return nil end
    elseif c == 123 or c == 91 then
      depth = depth + 1
    elseif c == 125 or c == 93 then
      depth = depth - 1
      if depth == 0 then return i end
    end
    i, steps = i + 1, steps + 1
    if steps > MAX_SCAN_STEPS then return nil, "request_too_complex" end
  end
end

local function utf8(code)
  local char, floor = string.char, math.floor
  if code < 0x80 then return char(code) end
  if code < 0x800 then return char(0xC0 + floor(code / 64), 0x80 + code % 64) end
  if code < 0x10000 then
    return char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
  end
  return char(0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64, 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
end

local SIMPLE = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ['"'] = '"', ["\\"] = "\\", ["/"] = "/" }

-- The text of a JSON string's raw content; nil if an escape is wrong.
local function unescape(raw)
  if not find(raw, "\\", 1, true) then return raw end
  local out, i = {}, 1
  while i <= #raw do
    local b = find(raw, "\\", i, true)
    out[#out + 1] = sub(raw, i, (b or #raw + 1) - 1)
    if not b then break end
    local e = sub(raw, b + 1, b + 1)
    i = b + 2
    if e == "u" then
      local code = tonumber(match(raw, "^%x%x%x%x", i) or "", 16)
      if not code then return nil end
      i = i + 4
      if code >= 0xD800 and code < 0xDC00 then
        local low = tonumber(match(raw, "^\\u(%x%x%x%x)", i) or "", 16)
        if not low or low < 0xDC00 or low > 0xDFFF then return nil end
        code, i = 0x10000 + (code - 0xD800) * 1024 + low - 0xDC00, i + 6
      elseif code >= 0xDC00 and code < 0xE000 then
        return nil
      end
      out[#out + 1] = utf8(code)
    else
      if not SIMPLE[e] then return nil end
      out[#out + 1] = SIMPLE[e]
    end
  end
  return table.concat(out)
end

local function short_text(s, from, to)
  if to - from > MAX_MODEL_BYTES then return sub(s, from, to) end -- too long for any name; compare as it is
  return unescape(sub(s, from, to))
end

-- The top-level "model" of a JSON object: its value, or nil and an error code. The last of several wins, as in every
-- engine's parser. Only what separates keys and values is looked at; the engine judges the rest.
local function json_model(s)
  local SPACE = "[^ \t\r\n]"
  local i = find(s, SPACE, sub(s, 1, 3) == "\239\187\191" and 4 or 1)
  if not i or byte(s, i) ~= 123 then return nil, "invalid_json" end
  local model, found = nil, "missing_required_parameter"
  i = find(s, SPACE, i + 1)
  if i and byte(s, i) == 125 then return nil, found end
  while i do
    if byte(s, i) ~= 34 then return nil, "invalid_json" end
    local key_end = string_end(s, i + 1)
    if not key_end then return nil, "invalid_json" end
    local is_model = short_text(s, i + 1, key_end - 1) == "model"
    i = find(s, SPACE, key_end + 1)
    if not i or byte(s, i) ~= 58 then return nil, "invalid_json" end
    i = find(s, SPACE, i + 1)
    local c, stop, why = i and byte(s, i), nil, nil
    if c == 34 then
      stop = string_end(s, i + 1)
    elseif c == 123 or c == 91 then
      stop, why = nested_end(s, i + 1)
    elseif c then
      stop = find(s, "[,}]", i)
      stop = stop and stop - 1
    end
    if not stop then return nil, why or "invalid_json" end
    if is_model then
      model, found = nil, "invalid_type"
      if c == 34 then
        model = short_text(s, i + 1, stop - 1)
        found = model and (model == "" and "missing_required_parameter" or "") or "invalid_json"
      end
    end
    i = find(s, SPACE, stop + 1)
    if not i then return nil, "invalid_json" end
    c = byte(s, i)
    if c == 125 then break end
    if c ~= 44 then return nil, "invalid_json" end
    i = find(s, SPACE, i + 1)
  end
  if not i then return nil, "invalid_json" end
  if found ~= "" then return nil, found end
  return model
end

-- The `model` field of a multipart form.
local function multipart_model(s, content_type)
  local boundary = match(content_type, 'boundary="([^"]+)"') or match(content_type, "boundary=([^;%s]+)")
  if not boundary then return nil, "invalid_form" end
  local mark, model = "--" .. boundary, nil
  local at = find(s, mark, 1, true)
  while at do
    local head = at + #mark
    local gap = find(s, "\r\n\r\n", head, true)
    local after = gap and find(s, "\r\n" .. mark, gap + 2, true)
    if not after then break end
    local fields = string.lower(sub(s, head, math.min(gap, head + 2048)))
    if find(fields, '[;%s]name="model"') or find(fields, "[;%s]name=model[;%s]") then
      model = sub(s, gap + 4, after - 1)
    end
    at = after + 2
  end
  if not model or model == "" then return nil, "missing_required_parameter" end
  return model
end

-- Requests -----------------------------------------------------------------------------------------------------------

local ERRORS = {
  invalid_json = { "400", "The body is not a JSON object.", "null" },
  invalid_form = { "400", "The body is not a multipart form.", "null" },
  missing_required_parameter = { "400", "You must provide a model parameter.", '"model"' },
  invalid_type = { "400", "The model parameter must be a string.", '"model"' },
  request_too_complex = { "413", "The body has too many parts.", "null" },
  unsupported_content_encoding = { "415", "The body is compressed: name its model in the header tradewind-model.", "null" },
}

local function refuse(h, status, message, param, code)
  h:respond({ [":status"] = status, ["content-type"] = "application/json" }, '{"error":{"message":"' .. message ..
    '","type":"invalid_request_error","param":' .. param .. ',"code":"' .. code .. '"}}')
end

local function refuse_unknown(h, model)
  local name = #model <= 128 and not find(model, "[^%w%-%._/:@ ]") and "`" .. model .. "` " or ""
  refuse(h, "404", "The model " .. name .. "does not exist.", '"model"', "model_not_found")
end

local function new_id()
  return (string.gsub("xxxxxxxx-xxxx-4xxx-8xxx-xxxxxxxxxxxx", "x", function() return string.format("%x", random(0, 15)) end))
end

-- A request id that could not stand in a log line is replaced; a query string may hold a key.
local function clean(headers)
  local id, path = headers:get("x-request-id"), headers:get(":path")
  if id and (#id > MAX_ID_BYTES or find(id, "[^%w%p]")) then headers:replace("x-request-id", new_id()) end
  local query = path and find(path, "?", 1, true)
  if query then headers:replace(":path", sub(path, 1, query - 1)) end
end

local function model_of(h, kind, only)
  local headers = h:headers()
  local coding = headers:get("content-encoding")
  local content_type = kind == "multipart" and headers:get("content-type") or ""
  if coding and coding ~= "identity" then
    local hint = headers:get("tradewind-model") or only
    return hint ~= "" and hint or nil, "unsupported_content_encoding"
  end
  local body = h:body() -- yields: handles taken before it are dead after it
  local text = body and body:getBytes(0, body:length()) or ""
  if kind == "multipart" then return multipart_model(text, content_type) end
  return json_model(text)
end

function envoy_on_request(h)
  if not seeded then seed(h) end
  clean(h:headers())
  local cell = h:headers():get("x-tw-cell") -- the picker's answer, with the pool; a client's own was removed
  if cell then
    h:headers():remove("x-tw-cell")
    h:clearRouteCache()
    h:setUpstreamOverrideHost(cell, false)
    return
  end
  local kind, only = match(h:streamInfo():routeName() or "", "^entry/(%l+)/(.*)$")
  if not kind then return end
  local model, code = model_of(h, kind, only)
  if not model then
    local e = ERRORS[code]
    return refuse(h, e[1], e[2], e[3], code)
  end
  if #model > MAX_MODEL_BYTES or find(model, "%c") then return refuse_unknown(h, model) end
  h:headers():replace("x-tw-pool", model)
  h:clearRouteCache()
  local metadata = h:metadata() -- resolves the route again, but only if it was not asked for before
  local name = h:streamInfo():routeName() or ""
  local version = match(name, "^pool/([^/]*)/")
  if sub(name, 1, 10) == "residency/" then return end
  if not version then return refuse_unknown(h, model) end
  if version == "" then return end -- a baseline, or a pool without cells
  local key = model .. (match(version, "%..*$") or "") -- a residency rule's part of a pool has shares of its own
  local pool = pools[key] or new_pool(key)
  if pool.version ~= version then load_table(pool, metadata:get("shares"), version) end
  h:setUpstreamOverrideHost(pool.pick(pool), false)
end
