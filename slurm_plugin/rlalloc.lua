--- rlalloc in slurmctld: recognises LLM jobs at submission, tags them and defers them for rlallocd.
--
-- A site's own job_submit.lua calls it (Slurm 22.05 and later; Lua 5.1 as on Debian 12, to 5.4):
--
--    local rlalloc = dofile("/usr/lib/rlalloc/rlalloc.lua")
--    rlalloc.job_submit(job_desc, part_list, submit_uid)   -- last, before it returns slurm.SUCCESS
--
-- It runs under slurmctld's locks: no sockets, no waiting, one small file is read. It rejects nothing and fails
-- open: without a valid <runtime>/intercept, or on any error, a job passes as it was submitted. README.md tells
-- what it touches.

local M = {}

local byte, find, match = string.byte, string.find, string.match -- looked up once: the loops below run under locks

local RUNTIME_DIRECTORY = os.getenv("RLALLOC_RUNTIME_DIRECTORY") or ""
if RUNTIME_DIRECTORY == "" then
   RUNTIME_DIRECTORY = "/run/rlalloc"
end
local INTERCEPT_FILE = RUNTIME_DIRECTORY .. "/intercept"
local WAKE_FILE = RUNTIME_DIRECTORY .. "/wake"

local UPTIME_FILE = "/proc/uptime"

local VERSION = "0.2.0" -- of rlalloc: `rlalloc doctor` compares it

local INTERCEPT_HEADER = "rlalloc-intercept 3"
local INTERCEPT_BYTES = 65536
local SCRIPT_BYTES = 16384 -- what is read of a script: slurmctld accepts 4 MB, and all of it waits
local CODE_BYTES = 4096 -- of that, without comment lines
local FINGERPRINT_BYTES = 1024
local MOST_LINES = 400
local MOST_OPTIONS = 250
local MOST_DIRECTIVES = 16 -- lines
local MOST_VALUES = 28 -- options, settings and launchers of the table that a script names
local MOST_TIMES = 4 -- occurrences of one setting, launcher or variable that are looked at
local MOST_VARIABLES = 6
local MOST_SUMS = 2
local MOST_TERMS = 4 -- names in a sum
local MOST_STEPS = 2
local LINE_BYTES = 200
local VALUE_BYTES = 200
local ARITHMETIC_BYTES = 48
local WORDS_BYTES = 2000
local FIELD_BYTES = 1024 -- what is read of a list of partitions or of GRES: names in it cost time
local SAMPLES = 64 -- bytes by which a text is seen to be no script
local MOST_ALIKE = 20
local ASK_BYTES = 400
local MOST_COMPLAINTS = 5 -- mistakes that a user reads about at once
local COMMENT_BYTES = 65535 -- what slurmdbd keeps of an admin comment
local NOTE_BYTES = 96 -- what the daemon adds to it
local SHOWS_A_MODEL = {"model", "tensor", "pipeline", "tp", "pp", "serve", "hidden-size"} -- as in rlallocd.job_plans
local SAME_ERROR_AGAIN_S = 600

local KNOWN_WORDS = {"gpus", "cpus-per-gpu", "mem-per-gpu", "gpu-multiple", "launch", "class"}
local LEAVE_ALONE = "off" -- the one word without a value
local LARGEST_NUMBER = 1e9
local CLASSES = {train = true, finetune = true, serve = true}
local GIB_PER_UNIT = {K = 1 / 1024 ^ 2, M = 1 / 1024, [""] = 1 / 1024, G = 1, T = 1024}
local LEAST_MEM_GIB = 1 -- LEAST_DECLARED_MIB_PER_GPU of core/rlalloc/bounds.py
local MODES = {off = true, shadow = true, enforce = true}
local TRES_FIELDS = {"tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "gres"}

-- Slurm's marks of a number that nobody set (slurm.h): NO_VAL, INFINITE and those of 16 bits. From NO_VAL on
-- nothing is a number: those of 64 bits reach Lua rounded.
local NO_VAL = 4294967294
local NO_VAL16 = 65534
local INFINITE16 = 65535

local NEWLINE, HASH, DOLLAR, DASH, BACKSLASH = 10, 35, 36, 45, 92 -- bytes
local ENDS_OF_LISTS = {[44] = true, [93] = true} -- , ]
local ENDS_OF_TABLES = {[125] = true} -- }

local function set_of(words)
   local set = {}
   for _, word in ipairs(words) do
      set[word] = true
   end
   return set
end

local IS_KNOWN_WORD = set_of(KNOWN_WORDS)
local UNKNOWN_WORD = "#RLALLOC %s: unknown; known are " .. table.concat(KNOWN_WORDS, "=, ") .. "="

--- A field of the job that is text, or nil where it is unset.
local function text_of(job_desc, field)
   local value = job_desc[field]
   if value == nil or value == "" then
      return nil
   end
   if type(value) ~= "string" then
      error(field .. ": expected text, found a " .. type(value), 0)
   end
   return value
end

--- A field of the job that is a number, or nil where it is unset.
local function number_of(job_desc, field)
   local value = job_desc[field]
   if value == nil then
      return nil
   end
   if type(value) ~= "number" then
      error(field .. ": expected a number, found a " .. type(value), 0)
   end
   if value >= 0 and value < NO_VAL and value ~= NO_VAL16 and value ~= INFINITE16 then
      return value
   end
   return nil
end

-- The intercept file

local function read_list(text, what, line)
   if text == nil then
      error(INTERCEPT_FILE .. ": no " .. what .. "= in: " .. line, 0)
   end
   local names = {}
   for name in text:gmatch("[^,]+") do
      names[#names + 1] = name
   end
   return set_of(names)
end

local function read_whole_number(text, line)
   return tonumber(text:match("^%d+$")) or error(INTERCEPT_FILE .. ": not a whole number: " .. line, 0)
end

--- The name that an entry's words have: nproc-per-node for --nproc_per_node, srun-n for "srun -n".
local function word_name(entry)
   return (entry:gsub(" %-", "-"):gsub("^%-+", ""):gsub("[_ ]", "-"))
end

--- By text: a shorter one that stands in it. Where the code does not have that, it need not be searched for the text.
local function gates_of(lists)
   local texts, gates = {}, {}
   for _, list in ipairs(lists) do
      for _, entry in ipairs(list) do
         texts[#texts + 1] = entry.text
         texts[#texts + 1] = entry.text:match("^%w+%.")
      end
   end
   for _, text in ipairs(texts) do
      for _, part in ipairs(texts) do
         if #part < #(gates[text] or text) and text:find(part, 1, true) then
            gates[text] = part
         end
      end
   end
   return gates
end

local table_of_words = {} -- read once for each text of its lines, not each time that the file is renewed

--- The table of words: long options, short options of srun, settings, launchers.
local function read_table(words, launchers)
   if words == table_of_words.words_line and launchers == table_of_words.launchers_line then
      return table_of_words
   end
   local found = {options = {}, srun = {}, settings = {}, launchers = {}, gates = {}}
   found.words_line, found.launchers_line = words, launchers
   for entry in words:gmatch("[^|]+") do
      local long, short = entry:match("^%-%-(.+)$"), entry:match("^srun %-(.+)$")
      if long then
         found.options[long] = word_name(entry)
         found.options[(long:gsub("-", "_"))] = word_name(entry)
      elseif short then
         found.srun[short] = word_name(entry)
      else
         found.settings[#found.settings + 1] = {text = entry, name = word_name(entry)}
      end
   end
   for entry in launchers:gmatch("[^|]+") do
      found.launchers[#found.launchers + 1] = {text = entry, name = word_name(entry)}
   end
   found.gates = gates_of({found.settings, found.launchers})
   table_of_words = found
   return found
end

local READERS = {
   expires = function(intercept, value, line)
      intercept.expires = read_whole_number(value, line)
   end,
   uptime = function(intercept, value, line)
      intercept.uptime = read_whole_number(value, line)
   end,
   grace = function(intercept, value, line)
      intercept.grace = read_whole_number(value, line)
   end,
   skip = function(intercept, value)
      intercept.skipped_forms[value] = true
   end,
   table = function(intercept, value, line)
      intercept.stamp = value:match("^%x+$") or error(INTERCEPT_FILE .. ": not a stamp: " .. line, 0)
   end,
   words = function(intercept, value)
      intercept.words = value
   end,
   launchers = function(intercept, value)
      intercept.launchers = value
   end,
   class = function(intercept, value, line)
      local name, text = value:match("^([%w_-]+) (.+)$")
      if name == nil then
         error(INTERCEPT_FILE .. ": not a class: " .. line, 0)
      end
      intercept.commands[#intercept.commands + 1] = {class = name, text = text}
   end,
   rule = function(intercept, value, line)
      local name, mode, rest = value:match("^([%w._-]+) (%l+) (.+)$")
      if not MODES[mode or ""] then
         error(INTERCEPT_FILE .. ": not a rule: " .. line, 0)
      end
      intercept.rules[#intercept.rules + 1] = {
         name = name,
         mode = mode,
         partitions = read_list((" " .. rest):match(" partitions=(%S*)"), "partitions", line),
         accounts = read_list((" " .. rest:lower()):match(" accounts=(%S*)"), "accounts", line),
         classes = read_list((" " .. rest):match(" classes=(%S*)"), "classes", line),
      }
   end,
}

--- What an intercept file says; nil if it is none of ours. Raises an error if it is broken or of another version.
local function parse_intercept(text)
   local header = text:match("^[^\n]*")
   if header ~= INTERCEPT_HEADER then
      if header:match("^rlalloc%-intercept ") then
         local what = ": rlallocd and rlalloc.lua are of different versions: restart rlallocd, touch job_submit.lua"
         error(INTERCEPT_FILE .. what, 0)
      end
      return nil
   end
   if text:sub(-1) ~= "\n" then
      error(INTERCEPT_FILE .. ": cut short", 0)
   end
   local intercept = {skipped_forms = {}, commands = {}, rules = {}, words = "", launchers = ""}
   for line in text:sub(#INTERCEPT_HEADER + 2):gmatch("[^\n]+") do
      local key, value = line:match("^(%l+) (.+)$")
      local reader = READERS[key or ""]
      if reader == nil then
         error(INTERCEPT_FILE .. ": cannot read: " .. line, 0)
      end
      reader(intercept, value, line)
   end
   if intercept.expires == nil or intercept.uptime == nil or intercept.grace == nil then
      error(INTERCEPT_FILE .. ": no expires, no uptime or no grace", 0)
   end
   return intercept
end

--- Seconds since this machine was started; nil where the system does not show them.
local function uptime()
   local file = io.open(UPTIME_FILE, "r")
   if file == nil then
      return nil
   end
   local text = file:read(64) or ""
   file:close()
   return tonumber(text:match("^%d+"))
end

--- Whether rlallocd has not renewed the file for too long. The uptime decides that: a clock that was set back would
-- keep the file valid after the daemon's death. The time decides after a restart of the machine.
local function is_expired(intercept, now)
   local up = uptime()
   return now > intercept.expires or (up ~= nil and up > intercept.uptime)
end

local last_text, last_intercept -- parsed once for each text, not once for each job

--- The intercept file if it is there, readable and not expired; else nil.
local function valid_intercept(now)
   local file = io.open(INTERCEPT_FILE, "r")
   if file == nil then
      return nil
   end
   local text = file:read(INTERCEPT_BYTES) or ""
   file:close()
   if text ~= last_text then
      last_text, last_intercept = nil, nil
      last_intercept = parse_intercept(text)
      last_text = text
   end
   if last_intercept == nil or is_expired(last_intercept, now) then
      return nil
   end
   return last_intercept
end

-- What kind of job it is

local function asks_for_gpus(job_desc)
   for _, field in ipairs(TRES_FIELDS) do
      for item in (text_of(job_desc, field) or ""):sub(1, FIELD_BYTES):gmatch("[^,]+") do
         -- gpu:2, gres:gpu:a100:2, gres/gpu=2, shard:2; not gres:gpu_mem:4, nor none of them: gpu:0
         local name, rest = item:gsub("^%s*gres[:/]", ""):match("^([^:=]+)(.*)$")
         if (name == "gpu" or name == "shard") and not rest:match("[:=]0+$") then
            return true
         end
      end
   end
   return (number_of(job_desc, "ntasks_per_tres") or 0) > 0 -- --ntasks-per-gpu alone: GPUs follow from the tasks
end

--- The words of all #RLALLOC lines, then those of a comment `rlalloc: …`; nil if there is neither.
-- No more words are read than a tag has room for: one beyond them makes the tag too long.
local function directive_words(script, comment)
   local words, bytes
   local function take(line)
      words, bytes = words or {}, bytes or 0
      for word in line:gmatch("%S+") do
         if bytes > ASK_BYTES then
            return
         end
         words[#words + 1] = word
         bytes = bytes + #word + 1
      end
   end
   local at, lines = script:find("#RLALLOC", 1, true), 0
   while at ~= nil and (bytes or 0) <= ASK_BYTES do
      lines = lines + 1
      if lines > MOST_DIRECTIVES then
         take(string.rep("_", ASK_BYTES + 1))
      end
      local line_end = script:find("\n", at, true) or #script + 1
      local line = script:sub(at + #"#RLALLOC", line_end - 1)
      if (at == 1 or script:byte(at - 1) == NEWLINE) and (line == "" or line:find("^%s")) then
         take(line)
      end
      at = script:find("#RLALLOC", line_end, true)
   end
   local from_comment = (comment or ""):sub(1, SCRIPT_BYTES):match("^%s*rlalloc:(.*)$")
   if from_comment then
      take(from_comment)
   end
   return words
end

-- What the script says. rlalloc.script_words reads it alike in Python; a test holds the two together.

--- Whether a third of a long text is the same byte, blanks aside: to search that for words takes too long.
-- Squares, so that no regular text looks like one byte.
local function is_no_script(text)
   if #text < 16 * SAMPLES then
      return false
   end
   local counts = {}
   for number = 1, SAMPLES do
      local byte = text:byte(number * number * 37 % #text + 1)
      counts[byte] = (counts[byte] or 0) + 1
      if byte ~= 32 and counts[byte] == MOST_ALIKE then
         return true
      end
   end
   return false
end

--- The script without comment lines, and whether that is all of it.
local function code_lines(script, whole)
   local kept, kept_from, at = {}, 1, 1
   for _ = 1, MOST_LINES do
      local line_end = find(script, "\n", at, true)
      local first = byte(script, at)
      if first == 32 or first == 9 then
         first = byte(script, (match(script, "^[ \t]*()", at)))
      end
      if first == HASH then
         if kept_from < at then
            kept[#kept + 1] = script:sub(kept_from, at - 1)
         end
         kept_from = (line_end or #script) + 1
      end
      if line_end == nil then
         kept[#kept + 1] = script:sub(kept_from)
         return table.concat(kept), whole
      end
      at = line_end + 1
   end
   kept[#kept + 1] = script:sub(kept_from, at - 1)
   return table.concat(kept), false
end

--- What is read of a script, and whether that is all of it. Empty where it is no script.
local function code_of(script, whole)
   local code
   code, whole = code_lines(script, whole)
   if #code > CODE_BYTES then
      code, whole = code:sub(1, CODE_BYTES), false
   end
   if is_no_script(code) then
      return "", false
   end
   return code, whole
end

--- The class of the first text of the intercept file that stands in the code.
local function class_of_commands(places, commands)
   for _, command in ipairs(commands) do
      if places[command.text] then
         return command.class
      end
   end
   return nil
end

--- Where each text stands in the code for the first time, false where it does not: searched for once.
local function first_places(code)
   return setmetatable({}, {
      __index = function(places, text)
         local at = find(code, text, 1, true) or false
         places[text] = at
         return at
      end,
   })
end

--- Whether a word may begin here: neither a letter, digit, dot, dash or $ stands before.
local function begins_word(code, at)
   return at == 1 or not find(code, "^[A-Za-z0-9_.$-]", at - 1)
end

--- A text without the bytes at its end that are in a set.
local function without_last(text, set)
   local last = #text
   if not set[text:byte(last)] then
      return text
   end
   while set[text:byte(last)] do
      last = last - 1
   end
   return text:sub(1, last)
end

--- The value in quotes or in $(…) that begins here; nil where there is neither, _ where its end is too far.
local function enclosed_value(part)
   local first, last = part:byte(1), nil
   if first == 34 or first == 39 then -- " '
      last = part:find(first == 34 and '"' or "'", 2, true)
      return last and part:sub(2, last - 1) or "_"
   elseif first == 96 then -- `
      last = part:find("`", 2, true)
      return last and "$(" .. part:sub(2, last - 1) .. ")" or "_"
   elseif part:find("^%$%(%(") then
      last = part:find("))", 1, true)
      return last and part:sub(1, last + 1) or "_"
   elseif part:find("^%$%(") then
      last = part:find(")", 1, true)
      return last and part:sub(1, last) or "_"
   end
end

--- The value that begins here; _ for one that is too long to be read, nil where there is none.
local function value_at(code, start)
   local part = code:sub(start, start + VALUE_BYTES - 1)
   local value = match(part, "^[^%s;|&\"'`()]+")
   if value == nil or value == "$" then
      return enclosed_value(part)
   elseif value == "\\" then
      return nil
   elseif #value == VALUE_BYTES then
      return "_"
   end
   local last = byte(value, -1)
   if ENDS_OF_LISTS[last] or ENDS_OF_TABLES[last] then
      value = without_last(value, ENDS_OF_LISTS)
      return find(value, "{", 1, true) and value or without_last(value, ENDS_OF_TABLES)
   end
   return value
end

--- What the script assigns to a variable; nil if it does not, or differently at different places.
local function assigned(code, name, variables)
   local values = variables.values
   if values[name] == nil then
      if variables.count >= MOST_VARIABLES then
         return nil
      end
      variables.count = variables.count + 1
      local text = name .. "="
      local value, several
      local at, times = find(code, text, 1, true), 1
      while at do
         if begins_word(code, at) then
            local found = value_at(code, at + #text) or false
            several = several or (value ~= nil and value ~= found)
            value = found
         end
         at, times = times < MOST_TIMES and find(code, text, at + 1, true), times + 1
      end
      values[name] = not several and value or false
   end
   return values[name] or nil
end

--- Follow a variable to its value, through at most MOST_STEPS assignments.
local function followed(code, value, name, variables)
   for _ = 1, MOST_STEPS do
      local found = name and assigned(code, name, variables)
      if not found then
         break
      end
      value = found
      name = value:match("^%${?([A-Za-z_][A-Za-z0-9_]*)}?$")
   end
   return value
end

--- What the script assigns, in the place of a variable, also inside of $((…)).
local function resolved(code, value, variables)
   if byte(value) ~= DOLLAR then
      return value
   end
   value = followed(code, value, match(value, "^%${?([A-Za-z_][A-Za-z0-9_]*)}?$"), variables)
   if value:sub(1, 3) ~= "$((" or #value > ARITHMETIC_BYTES or variables.sums == MOST_SUMS then
      return value
   end
   variables.sums = variables.sums + 1
   return "$((" .. value:sub(4):gsub("[ \t$]", ""):gsub("[A-Za-z_][A-Za-z0-9_]*", function(name)
      return followed(code, name, name, variables)
   end, MOST_TERMS)
end

--- Where the first MOST_TIMES occurrences of a text end, of those that are a word of their own.
local function ends_of_commands(code, places, text)
   local ends = {}
   local at, times = places[text], 1
   while at do
      local last = at + #text
      if begins_word(code, at) and (last > #code or find(code, "^%s", last)) then
         ends[#ends + 1] = last
      end
      at, times = times < MOST_TIMES and find(code, text, at + 1, true), times + 1
   end
   return ends
end

--- The long options, false if there are too many to look at. A word that begins with a dash is no value.
local function take_options(code, options, take)
   local at = 1
   for _ = 1, MOST_OPTIONS do
      at = find(code, "--", at, true)
      if at == nil then
         return true
      end
      local name, last = match(code, "^([A-Za-z][A-Za-z0-9_.-]*)()", at + 2)
      if name == nil then
         at = match(code, "^%-+()", at)
      else
         at = last
         if options[name] then
            local from = match(code, "^[ \t]*=?[ \t]*()", at)
            if byte(code, from) == BACKSLASH then
               from = match(code, "^\\\r?\n[ \t]*()", from) or from
            end
            local value = from > at and value_at(code, from) or nil
            if value and byte(value) == DASH and (value == "-" or find(value, "^%-[^0-9]")) then
               value = nil
            end
            if not take(options[name], value) then
               return false
            end
         end
      end
   end
   return false
end

--- Whether the code may have an entry's text, by a shorter text that stands in it.
local function passes_gate(places, gates, text)
   return gates[text] == nil or places[gates[text]]
end

local function take_settings(code, places, entries, take)
   for _, setting in ipairs(entries.settings) do
      local text = setting.text
      if passes_gate(places, entries.gates, text) then
         local separator = byte(text) == DASH and "^[ =]()" or "^[\"']?[ \t]*[=:][ \t]*()"
         local at, times = places[text], 1
         while at do
            local from = begins_word(code, at) and match(code, separator, at + #text)
            if from and not take(setting.name, value_at(code, from)) then
               return false
            end
            at, times = times < MOST_TIMES and find(code, text, at + 1, true), times + 1
         end
      end
   end
   return true
end

local function take_commands(code, places, entries, take)
   for _, last in ipairs(ends_of_commands(code, places, "srun")) do
      local line = code:sub(last, last + LINE_BYTES - 1):gsub("\\\r\n", " "):gsub("\\\n", " "):match("^[^\n]*")
      for letter, value in line:gmatch("[ \t]%-([A-Za-z])[ =]?([0-9$]%S*)") do
         if entries.srun[letter] and not take(entries.srun[letter], value) then
            return false
         end
      end
   end
   for _, launcher in ipairs(entries.launchers) do
      if passes_gate(places, entries.gates, launcher.text) and places[launcher.text] then
         for _, last in ipairs(ends_of_commands(code, places, launcher.text)) do
            local value = value_at(code, last + 1)
            if not take(launcher.name, value and not find(value, "^%-") and value or nil) then
               return false
            end
         end
      end
   end
   return true
end

--- The words of the code that the table names, joined by +; too-long if they are not all there.
-- Variables are followed only once it is known that there are not too many words.
local function words_of(code, places, entries)
   local names, values, count = {}, {}, 0
   local function take(name, value)
      count = count + 1
      names[count], values[count] = name, value or false
      return count <= MOST_VALUES
   end
   local all = take_options(code, entries.options, take)
      and take_settings(code, places, entries, take)
      and take_commands(code, places, entries, take)
   if not all then
      return "too-long"
   end
   local words, listed, bytes, variables = {}, {}, -1, {count = 0, sums = 0, values = {}}
   for number = 1, count do
      local word, value = names[number], values[number]
      if value then
         local whole = resolved(code, value, variables)
         if whole == value or not whole:find("^%-[^0-9]") then
            word = word .. "=" .. whole:gsub("[^A-Za-z0-9=,._/$:{}()*-]", "_")
         end
      end
      if not listed[word] then
         listed[word] = true
         words[#words + 1] = word
         bytes = bytes + #word + 1
         if bytes > WORDS_BYTES then
            return "too-long"
         end
      end
   end
   return table.concat(words, "+")
end

--- A polynomial hash modulo 2^31 - 1 of the first bytes without blanks and digits, which runs differ in.
--- Eight bytes a turn, without a loop inside: one byte a turn cost 40 µs a script.
local function fingerprint_of(code)
   local state = 7
   local last = math.min(#code, FINGERPRINT_BYTES)
   for at = 1, last, 8 do
      local a, b, c, d, e, f, g, h = byte(code, at, at + 7)
      if at + 7 > last then -- 32, a blank, changes nothing
         b, c, d, e, f, g, h = b or 32, c or 32, d or 32, e or 32, f or 32, g or 32, h or 32
      end
      if a > 57 or (a > 32 and a < 48) then
         state = state * 31 + a
      end
      if b > 57 or (b > 32 and b < 48) then
         state = state * 31 + b
      end
      if c > 57 or (c > 32 and c < 48) then
         state = state * 31 + c
      end
      if d > 57 or (d > 32 and d < 48) then
         state = state * 31 + d
      end
      state = state % 2147483647
      if e > 57 or (e > 32 and e < 48) then
         state = state * 31 + e
      end
      if f > 57 or (f > 32 and f < 48) then
         state = state * 31 + f
      end
      if g > 57 or (g > 32 and g < 48) then
         state = state * 31 + g
      end
      if h > 57 or (h > 32 and h < 48) then
         state = state * 31 + h
      end
      state = state % 2147483647
   end
   return string.format("%.0f", state)
end

--- The class of the job; nil if it is not an LLM job.
local function class_of(places, words, commands)
   local named
   for _, word in ipairs(words or {}) do
      local value = word:match("^class=(.*)$")
      if CLASSES[value or ""] then
         named = value
      end
   end
   return named or class_of_commands(places, commands) or (words and "train")
end

-- Which rule holds

local function partitions_of(job_desc, part_list)
   local names = {}
   for name in (text_of(job_desc, "partition") or ""):sub(1, FIELD_BYTES):gmatch("[^,%s]+") do
      names[#names + 1] = name
   end
   if #names == 0 then
      for name, partition in pairs(part_list or {}) do
         if partition.flag_default == 1 then
            names[1] = name
         end
      end
   end
   return names
end

local function all_in(names, set)
   if set["*"] then
      return true
   end
   for _, name in ipairs(names) do
      if not set[name] then
         return false
      end
   end
   return #names > 0
end

local function first_rule(rules, class, job_desc, part_list)
   local partitions = partitions_of(job_desc, part_list)
   local account = text_of(job_desc, "account") or text_of(job_desc, "default_account") or ""
   local accounts = {account ~= "" and account:lower() or nil} -- Slurm's are lower-case; sbatch -A takes any
   for _, rule in ipairs(rules) do
      if
         all_in({class}, rule.classes)
         and all_in(partitions, rule.partitions)
         and all_in(accounts, rule.accounts)
      then
         return rule
      end
   end
   return nil
end

--- Whether a tag stands there already: copied from another job, or a site's own job_submit.lua called us twice.
local function has_tag(job_desc)
   return (text_of(job_desc, "admin_comment") or ""):find("rlalloc:v=", 1, true) ~= nil
end

--- Why an LLM job that a rule covers is skipped here, which costs it no time: a name; nil if it is not skipped.
-- The daemon skips, by the same names, what Lua cannot see: of a deadline there is only what the script says, since
-- job_desc shows no such field. `skipped_forms` are those that any update breaks in this site's Slurm, even one of the
-- begin time: Lua is told no version, rlallocd knows it.
local function name_to_skip(job_desc, script, skipped_forms)
   if number_of(job_desc, "het_job_offset") then
      return "heterogeneous"
   end
   if job_desc.cron_job == true then
      return "scrontab"
   end
   if text_of(job_desc, "clusters") then
      return "multi-cluster"
   end
   if text_of(job_desc, "reservation") then
      return "reservation"
   end
   if number_of(job_desc, "time_min") then
      return "time-min"
   end
   if job_desc.environment["SLURM_ARBITRARY_NODELIST"] ~= nil then -- -m arbitrary: slurmd lays tasks out by this list
      return "arbitrary"
   end
   if skipped_forms["ntasks-per-gpu"] and number_of(job_desc, "ntasks_per_tres") then
      return "ntasks-per-gpu"
   end
   if script:find("--deadline", 1, true) and ("\n" .. script):find("\n#SBATCH[^\n]* %-%-deadline") then
      return "deadline"
   end
   return nil
end

-- The tag

--- A word without a character that could forge another field, or a line of somebody's terminal.
local function cleaned(word)
   return (word:gsub("[^A-Za-z0-9=,._-]", "_"))
end

--- The directive words as one word: joined by +, and without a character that could forge another field.
-- A word is never dropped or cut: the daemon would act on a part of what the user said. What is bad in it stays
-- visible as _, which the daemon refuses, and the job keeps its size.
local function ask_of(words)
   local clean = {}
   for number, word in ipairs(words or {}) do
      clean[number] = cleaned(word)
   end
   local ask = table.concat(clean, "+")
   if #ask > ASK_BYTES then
      return "too-long"
   end
   return ask
end

--- Whether the words may name a model or parallel sizes: then the TaskProlog looks for rlallocd's plan.
local function shows_a_model(words)
   for _, part in ipairs(SHOWS_A_MODEL) do
      if words ~= "too-long" and find(words, part, 1, true) then
         return true
      end
   end
   return false
end

--- What the script shows, for the tag, and whether the job may have a plan; empty if the intercept file names no words.
local function reading_of(code, places, whole, intercept)
   if intercept.stamp == nil then
      return "", false
   end
   local words = "too-long"
   if whole then
      words = words_of(code, places, read_table(intercept.words, intercept.launchers))
   end
   local reading = string.format(";table=%s;script=%s;words=%s", intercept.stamp, fingerprint_of(code), words)
   return reading, shows_a_model(words)
end

local function tag_text(rule, class, begin, user_begin, words, skip)
   return string.format(
      "rlalloc:v=1;mode=%s;rule=%s;class=%s;begin=%.0f;user_begin=%.0f;ask=%s%s",
      rule.mode, rule.name, class, begin, user_begin, ask_of(words), skip and ";skip=" .. skip or ""
   )
end

local function whole_number(text)
   local number = text:match("^%d+$") and tonumber(text)
   return number and number >= 1 and number <= LARGEST_NUMBER and number or nil
end

local function positive_number(text)
   local number = (text:match("^%d+$") or text:match("^%d+%.%d+$")) and tonumber(text)
   return number and number > 0 and number or nil
end

local function memory_size(text)
   local digits, unit = text:match("^([%d.]+)([KMGTkmgt]?)$")
   local number = positive_number(digits or "")
   return number and number * GIB_PER_UNIT[unit:upper()]
end

local READ_VALUE = {
   ["gpus"] = whole_number,
   ["cpus-per-gpu"] = positive_number,
   ["mem-per-gpu"] = memory_size,
   ["gpu-multiple"] = whole_number,
}
local EXAMPLES = {
   ["gpus"] = "gpus=4, gpus=1-8 or gpus=1,2,4",
   ["cpus-per-gpu"] = "cpus-per-gpu=8 or cpus-per-gpu=2-8",
   ["mem-per-gpu"] = "mem-per-gpu=64G or mem-per-gpu=8G-64G",
   ["gpu-multiple"] = "gpu-multiple=2",
   ["launch"] = "launch=torchrun or launch=srun",
   ["class"] = "class=train, class=finetune or class=serve",
}

--- Whether a value can be read, and whether its range is in order; as parse_directives of core/rlalloc/bounds.py.
local function is_right(key, value)
   if key == "launch" then
      return value == "torchrun" or value == "srun", true
   elseif key == "class" then
      return CLASSES[value] or false, true
   end
   local read = READ_VALUE[key]
   if key == "gpu-multiple" then
      return read(value) ~= nil, true
   elseif key == "gpus" and value:find(",", 1, true) then
      for part in (value .. ","):gmatch("([^,]*),") do
         if not read(part) then
            return false, true
         end
      end
      return true, true
   end
   local first, second = value:match("^([^-]*)%-?(.*)$")
   local low, high = read(first), read(second ~= "" and second or first)
   return low ~= nil and high ~= nil, low == nil or high == nil or low <= high
end

--- What is wrong with a word, for the user, as a text with a place for the word; nil if nothing is that can be seen.
local function complaint_about(word)
   local key, value = match(word, "^([^=]+)=(.+)$")
   if not IS_KNOWN_WORD[key or ""] then
      return UNKNOWN_WORD
   end
   local can_be_read, in_order = is_right(key, value)
   if not can_be_read then
      return "#RLALLOC %s: write " .. EXAMPLES[key]
   elseif not in_order then
      return "#RLALLOC %s: the first number must not be above the second"
   end
   return nil
end

--- All that is wrong with the words, as parse_directives of core/rlalloc/bounds.py tells it.
-- A word that is too long by itself is told as that.
local function complaints_about(words)
   local complaints = {}
   if ask_of(words) == "too-long" then
      complaints[1] = string.format("the #RLALLOC words are longer than %d characters", ASK_BYTES)
   end
   for _, word in ipairs(words or {}) do
      local complaint = #word <= VALUE_BYTES and complaint_about(word)
      if complaint and #complaints == MOST_COMPLAINTS then
         complaints[#complaints + 1] = "there are more mistakes in the #RLALLOC words"
         break
      elseif complaint then
         complaints[#complaints + 1] = string.format(complaint, cleaned(word:sub(1, 60)))
      end
   end
   return complaints
end

--- What a user should know of words that are right; nil if nothing.
local function remark_about(words)
   for _, word in ipairs(words or {}) do
      local number, unit = word:match("^mem%-per%-gpu=([%d.]+)([KMGTkmgt]?)")
      local gib = (tonumber(number) or LEAST_MEM_GIB) * GIB_PER_UNIT[(unit or ""):upper()]
      if number and gib < LEAST_MEM_GIB then
         local text = "#RLALLOC %s: your job gets at least %dG of memory per GPU, or what your site has set instead"
         return string.format(text, ask_of({word}):sub(1, 60), LEAST_MEM_GIB)
      end
   end
   return nil
end

-- What is done to the job

--- Whether a number was asked for in one of the fields.
local function asks_for_any(job_desc, fields)
   for _, field in ipairs(fields) do
      if (number_of(job_desc, field) or 0) > 0 then
         return true
      end
   end
   return false
end

--- Whether the job asks for a number of tasks, or for --hint, which makes Slurm count them.
-- Where it does not, Slurm adds task counts to its environment once an update has named them, and the TaskProlog
-- takes them away again.
local function asks_for_tasks(job_desc, leaked)
   if asks_for_any(job_desc, {"num_tasks", "ntasks_per_node", "ntasks_per_tres", "threads_per_core"}) then
      return true
   end
   return job_desc.environment["SLURM_NTASKS"] ~= nil and not leaked:find(" SLURM_NTASKS=", 1, true)
end

--- A test whether the job asks for GPUs in this field, as many as the variable of the environment says.
local function asks_for_gpus_by(field)
   return function(job_desc, value)
      for item in (text_of(job_desc, field) or ""):sub(1, FIELD_BYTES):gmatch("[^,]+") do
         if (":" .. item:gsub("[=/]", ":")):sub(-#value - 1) == ":" .. value then
            return true
         end
      end
      return false
   end
end

local function asks_by(numbers, texts)
   return function(job_desc)
      for _, field in ipairs(texts or {}) do
         if text_of(job_desc, field) ~= nil then
            return true
         end
      end
      return asks_for_any(job_desc, numbers)
   end
end

--- By variable that the TaskProlog sets: whether the job asks for it itself.
local ASKS_ITSELF = {
   SLURM_NTASKS = asks_by({"num_tasks", "ntasks_per_node", "ntasks_per_tres"}),
   SLURM_NPROCS = asks_by({"num_tasks", "ntasks_per_node", "ntasks_per_tres"}),
   SLURM_NTASKS_PER_NODE = asks_by({"ntasks_per_node"}),
   SLURM_NTASKS_PER_GPU = asks_by({"ntasks_per_tres"}),
   SLURM_GPUS = asks_for_gpus_by("tres_per_job"),
   SLURM_GPUS_PER_NODE = asks_for_gpus_by("tres_per_node"),
   SLURM_GPUS_PER_TASK = asks_for_gpus_by("tres_per_task"),
   SLURM_CPUS_PER_GPU = asks_by({}, {"cpus_per_tres"}),
   SLURM_MEM_PER_NODE = function(job_desc)
      return number_of(job_desc, "min_mem_per_node") ~= nil -- --mem=0 is all of it
   end,
   SLURM_TRES_PER_TASK = asks_by({"cpus_per_task"}, {"tres_per_task"}),
   SLURM_TRES_BIND = asks_by({"ntasks_per_tres"}, {"tres_bind", "tres_per_task"}),
}

--- What a job that is submitted from inside one of ours inherits of its size, as " NAME=value NAME=value"; its
-- TaskProlog takes these away. What the job asks for itself is its own: sbatch has written that over it.
local function leaked_from_another(job_desc)
   local environment = job_desc.environment
   local set = environment["SLURM_SET_BY_RLALLOC"]
   if set == nil then
      return ""
   end
   local leaked = ""
   for name, value in set:sub(1, FIELD_BYTES):gmatch(" (SLURM_[%u_]+)=([%w_:=,./-]+)") do
      local asks = ASKS_ITSELF[name]
      if asks ~= nil and environment[name] == value and not asks(job_desc, value) then
         leaked = leaked .. " " .. name .. "=" .. value
      end
   end
   environment["RLALLOC_LEAKED"] = leaked
   return leaked
end

--- Wake the daemon: it watches for a writer closing the file. Nothing is written, so that the file cannot grow
-- (nor anything else, if a link stands in its place); where there is none, no daemon waits for it.
local function wake_daemon()
   local file = io.open(WAKE_FILE, "r+")
   if file ~= nil then
      file:close()
   end
end

--- Tag the job, and defer it where the mode is enforce. begin_time comes last, so that nothing half-done is deferred.
-- A skipped job is only tagged, for the daemon to record why.
local function intercept_job(job_desc, rule, class, words, reading, planned, now, grace, skip, leaked)
   local user_begin = number_of(job_desc, "begin_time") or 0
   local admin_comment = text_of(job_desc, "admin_comment")
   local enforce = rule.mode == "enforce" and skip == nil
   local held = job_desc.priority == 0 -- the user's hold is the user's to release: tagged, not deferred
   local begin = 0
   if enforce and not held then
      begin = math.max(user_begin, now + grace)
   end
   local tag = tag_text(rule, class, begin, user_begin, words, skip) .. reading
   local comment = admin_comment and (admin_comment .. " " .. tag) or tag
   if #comment + NOTE_BYTES > COMMENT_BYTES then
      slurm.log_info("rlalloc: job passed as submitted: its admin comment has no room for a tag")
      return
   end
   if enforce then
      job_desc.environment["RLALLOC_JOB"] = "1"
      if not asks_for_tasks(job_desc, leaked) then
         job_desc.environment["RLALLOC_NO_TASKS"] = "1"
      end
      if planned then
         job_desc.environment["RLALLOC_PLAN"] = "1"
      end
   end
   job_desc.admin_comment = comment
   if begin > user_begin then
      job_desc.begin_time = begin
   end
   wake_daemon() -- in shadow too: a job that starts at once would never be decided
end

local function handle(job_desc, part_list)
   local script = text_of(job_desc, "script")
   if script == nil then
      return -- interactive
   end
   local leaked = leaked_from_another(job_desc) -- whatever job it is, and whether or not rlallocd runs
   if not asks_for_gpus(job_desc) then
      return
   end
   local now = os.time()
   local intercept = valid_intercept(now)
   if intercept == nil then
      return
   end
   local whole = #script <= SCRIPT_BYTES
   script = script:sub(1, SCRIPT_BYTES)
   local words = directive_words(script, text_of(job_desc, "comment"))
   for _, word in ipairs(words or {}) do
      if word == LEAVE_ALONE then
         return -- its user's word; not even a tag
      end
   end
   local code
   code, whole = code_of(script, whole)
   local places = first_places(code)
   local class = class_of(places, words, intercept.commands)
   if class == nil then
      return
   end
   local rule = first_rule(intercept.rules, class, job_desc, part_list)
   if rule == nil or rule.mode == "off" then
      return
   end
   if has_tag(job_desc) or (number_of(job_desc, "het_job_offset") or 0) > 0 then
      return -- of a heterogeneous job, the first component stands for all
   end
   local skip = name_to_skip(job_desc, script, intercept.skipped_forms)
   local reading, planned = reading_of(code, places, whole, intercept)
   intercept_job(job_desc, rule, class, words, reading, planned, now, intercept.grace, skip, leaked)
   if skip ~= nil then
      return
   end
   local complaints = complaints_about(words)
   for number, complaint in ipairs(complaints) do
      local ending = number == #complaints and " The job is not rejected; it keeps its size." or ""
      slurm.log_user("rlalloc: %s.%s", complaint, ending)
   end
   if #complaints > 0 then
      return
   end
   local remark = remark_about(words)
   if remark ~= nil then
      slurm.log_user("rlalloc: %s.", remark)
   end
end

local last_error, last_error_time

local function report(problem)
   problem = tostring(problem):sub(1, 300)
   local now = os.time()
   if problem == last_error and now < last_error_time + SAME_ERROR_AGAIN_S then
      return
   end
   last_error, last_error_time = problem, now
   slurm.log_error("rlalloc: job passed as submitted: %s", problem)
end

--- Call it for each submission, after the site's own rules. Returns nothing, raises nothing, rejects nothing.
function M.job_submit(job_desc, part_list, _submit_uid)
   local ok, problem = pcall(handle, job_desc, part_list)
   if not ok then
      pcall(report, problem)
   end
end

return M
