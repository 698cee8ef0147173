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

local RUNTIME_DIRECTORY = os.getenv("RLALLOC_RUNTIME_DIRECTORY") or ""
if RUNTIME_DIRECTORY == "" then
   RUNTIME_DIRECTORY = "/run/rlalloc"
end
local INTERCEPT_FILE = RUNTIME_DIRECTORY .. "/intercept"
local WAKE_FILE = RUNTIME_DIRECTORY .. "/wake"

local UPTIME_FILE = "/proc/uptime"

local INTERCEPT_HEADER = "rlalloc-intercept 2"
local INTERCEPT_BYTES = 65536
local SCRIPT_BYTES = 262144 -- what is searched of a script: slurmctld accepts 4 MB
local ASK_BYTES = 400
local COMMENT_BYTES = 65535 -- what slurmdbd keeps of an admin comment
local NOTE_BYTES = 64 -- what the daemon adds to it
local SAME_ERROR_AGAIN_S = 600

local KNOWN_WORDS = {"gpus", "cpus-per-gpu", "mem-per-gpu", "gpu-multiple", "launch", "class"}
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

local function set_of(words)
   local set = {}
   for _, word in ipairs(words) do
      set[word] = true
   end
   return set
end

local IS_KNOWN_WORD = set_of(KNOWN_WORDS)

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
   local intercept = {skipped_forms = {}, commands = {}, rules = {}}
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
      for item in (text_of(job_desc, field) or ""):gmatch("[^,]+") do
         -- gpu:2, gres:gpu:a100:2, gres/gpu=2; not gres:gpu_mem:4, nor none of them: gpu:0
         local name, rest = item:gsub("^%s*gres[:/]", ""):match("^([^:=]+)(.*)$")
         if name == "gpu" and not rest:match("[:=]0+$") then
            return true
         end
      end
   end
   return (number_of(job_desc, "ntasks_per_tres") or 0) > 0 -- --ntasks-per-gpu alone: GPUs follow from the tasks
end

--- The words of all #RLALLOC lines, then those of a comment `rlalloc: …`; nil if there is neither.
local function directive_words(script, comment)
   local words
   local function take(line)
      words = words or {}
      for word in line:gmatch("%S+") do
         words[#words + 1] = word
      end
   end
   if script:find("#RLALLOC", 1, true) then
      for line in ("\n" .. script):gmatch("\n#RLALLOC([^\n]*)") do
         if line:match("^%s") or line == "" then
            take(line)
         end
      end
   end
   local from_comment = (comment or ""):match("^%s*rlalloc:(.*)$")
   if from_comment then
      take(from_comment)
   end
   return words
end

--- The class of the first text of the intercept file that stands in the script outside of comment lines.
local function class_of_commands(script, commands)
   local code -- made only if a text stands anywhere: most scripts have none
   for _, command in ipairs(commands) do
      if script:find(command.text, 1, true) then
         code = code or ("\n" .. script):gsub("\n[ \t]*#[^\n]*", "")
         if code:find(command.text, 1, true) then
            return command.class
         end
      end
   end
   return nil
end

--- The class of the job; nil if it is not an LLM job.
local function class_of(script, words, commands)
   local named
   for _, word in ipairs(words or {}) do
      local value = word:match("^class=(.*)$")
      if CLASSES[value or ""] then
         named = value
      end
   end
   return named or class_of_commands(script, commands) or (words and "train")
end

-- Which rule holds

local function partitions_of(job_desc, part_list)
   local names = {}
   for name in (text_of(job_desc, "partition") or ""):gmatch("[^,%s]+") do
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
   if text_of(job_desc, "reservation") then
      return "reservation"
   end
   if number_of(job_desc, "time_min") then
      return "time-min"
   end
   if skipped_forms["ntasks-per-gpu"] and number_of(job_desc, "ntasks_per_tres") then
      return "ntasks-per-gpu"
   end
   if ("\n" .. script):find("\n#SBATCH[^\n]* %-%-deadline") then
      return "deadline"
   end
   return nil
end

-- The tag

--- The directive words as one word: joined by +, and without a character that could forge another field.
-- A word is never dropped or cut: the daemon would act on a part of what the user said. What is bad in it stays
-- visible as _, which the daemon refuses, and the job keeps its size.
local function ask_of(words)
   local clean = {}
   for number, word in ipairs(words or {}) do
      clean[number] = word:gsub("[^A-Za-z0-9=,._-]", "_")
   end
   local ask = table.concat(clean, "+")
   if #ask > ASK_BYTES then
      return "too-long"
   end
   return ask
end

local function tag_text(rule, class, begin, user_begin, words, skip)
   return string.format(
      "rlalloc:v=1;mode=%s;rule=%s;class=%s;begin=%.0f;user_begin=%.0f;ask=%s%s",
      rule.mode, rule.name, class, begin, user_begin, ask_of(words), skip and ";skip=" .. skip or ""
   )
end

--- What is wrong with the words, for the user; nil if nothing is that can be seen here.
local function complaint_about(words)
   for _, word in ipairs(words or {}) do
      local shown = ask_of({word}):sub(1, 60)
      local key, value = word:match("^([^=]+)=(.+)$")
      if not IS_KNOWN_WORD[key or ""] then
         local known = table.concat(KNOWN_WORDS, "=, ") .. "="
         return string.format("#RLALLOC %s: unknown; known are %s", shown, known)
      end
      if key == "class" and not CLASSES[value] then
         return string.format("#RLALLOC %s: write class=train, class=finetune or class=serve", shown)
      end
   end
   if ask_of(words) == "too-long" then
      return string.format("the #RLALLOC words are longer than %d characters", ASK_BYTES)
   end
   return nil
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

--- Whether the job asks for a number of tasks, or for --hint, which makes Slurm count them.
-- Where it does not, Slurm adds task counts to its environment once an update has named them, and the TaskProlog
-- takes them away again.
local function asks_for_tasks(job_desc)
   for _, field in ipairs({"num_tasks", "ntasks_per_node", "ntasks_per_tres", "threads_per_core"}) do
      if (number_of(job_desc, field) or 0) > 0 then
         return true
      end
   end
   return job_desc.environment["SLURM_NTASKS"] ~= nil
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
local function intercept_job(job_desc, rule, class, words, now, grace, skip)
   local user_begin = number_of(job_desc, "begin_time") or 0
   local admin_comment = text_of(job_desc, "admin_comment")
   local enforce = rule.mode == "enforce" and skip == nil
   local held = job_desc.priority == 0 -- the user's hold is the user's to release: tagged, not deferred
   local begin = 0
   if enforce and not held then
      begin = math.max(user_begin, now + grace)
   end
   local tag = tag_text(rule, class, begin, user_begin, words, skip)
   local comment = admin_comment and (admin_comment .. " " .. tag) or tag
   if #comment + NOTE_BYTES > COMMENT_BYTES then
      slurm.log_info("rlalloc: job passed as submitted: its admin comment has no room for a tag")
      return
   end
   if enforce then
      job_desc.environment["RLALLOC_JOB"] = "1"
      if not asks_for_tasks(job_desc) then
         job_desc.environment["RLALLOC_NO_TASKS"] = "1"
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
   if script == nil or not asks_for_gpus(job_desc) then
      return -- interactive, or no GPUs
   end
   local now = os.time()
   local intercept = valid_intercept(now)
   if intercept == nil then
      return
   end
   script = script:sub(1, SCRIPT_BYTES)
   local words = directive_words(script, text_of(job_desc, "comment"))
   local class = class_of(script, words, intercept.commands)
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
   intercept_job(job_desc, rule, class, words, now, intercept.grace, skip)
   if skip ~= nil then
      return
   end
   local complaint = complaint_about(words)
   if complaint ~= nil then
      slurm.log_user("rlalloc: %s. The job is not rejected; it keeps its size.", complaint)
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
