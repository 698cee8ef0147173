-- rlalloc's part of slurmctld's job_submit/lua plugin: finds LLM jobs, tags them and defers them for rlallocd.
--
-- A site's own job_submit.lua calls it:
--
--     local rlalloc = dofile("/usr/lib/rlalloc/rlalloc.lua")
--     function slurm_job_submit(job_desc, part_list, submit_uid)
--        ... the site's own rules ...
--        rlalloc.job_submit(job_desc, part_list, submit_uid)
--        return slurm.SUCCESS
--     end
--
-- It fails open: whatever goes wrong here, the job passes untouched. It runs under slurmctld's locks, so it reads one
-- small file, writes at most one, and never waits. It never sets a priority: a deferred job begins by itself.

local rlalloc = {}

local runtime_directory = os.getenv("RLALLOC_RUNTIME_DIRECTORY") or "/run/rlalloc"
local INTERCEPT_HEADER = "rlalloc-intercept 1"
local DIRECTIVES = { gpus = true, ["cpus-per-gpu"] = true, ["mem-per-gpu"] = true,
                     ["gpu-multiple"] = true, launch = true, class = true }
local MAX_ASK = 400
local MAX_SCRIPT = 262144

-- Unset numbers reach Lua as NO_VAL or INFINITE of 16, 32 or 64 bits, unset strings as nil.
local function number(value)
   if type(value) ~= "number" or value >= 4294967293 or (value >= 65533 and value <= 65535) then
      return nil
   end
   return value
end

local function text(value)
   return type(value) == "string" and value or ""
end

local function words_of(list)
   local set = {}
   for word in string.gmatch(list, "[^,]+") do
      set[word] = true
   end
   return set
end

local function parse_rule(line)
   local name, mode, rest = string.match(line, "^rule (%S+) (%S+) (.*)$")
   if name == nil then
      return nil
   end
   local rule = { name = name, mode = mode }
   for key, list in string.gmatch(rest, "(%w+)=(%S+)") do
      rule[key] = words_of(list)
   end
   return rule
end

-- What rlallocd wants done, or nil where it is dead, stale or of another version.
local function read_intercept()
   local file = io.open(runtime_directory .. "/intercept", "r")
   if file == nil then
      return nil
   end
   local content = file:read("*a")  -- the form that Lua 5.1 knows too
   file:close()
   local intercept = { classes = {}, rules = {} }
   local first = true
   for line in string.gmatch(content, "[^\n]+") do
      if first and line ~= INTERCEPT_HEADER then
         return nil
      end
      first = false
      local class, command = string.match(line, "^class (%S+) (.+)$")
      if class ~= nil then
         table.insert(intercept.classes, { class = class, command = command })
      elseif string.match(line, "^rule ") then
         table.insert(intercept.rules, parse_rule(line))
      else
         local key, value = string.match(line, "^(%l+) (%d+)$")
         if key ~= nil then
            intercept[key] = tonumber(value)
         end
      end
   end
   if intercept.expires == nil or intercept.grace == nil or os.time() > intercept.expires then
      return nil
   end
   return intercept
end

local function asks_for_gpus(job)
   for _, field in ipairs({ "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "gres" }) do
      if string.find(text(job[field]), "gpu", 1, true) then
         return true
      end
   end
   return false
end

-- The words of all #RLALLOC lines, or of a comment such as "rlalloc: gpus=1-8" (for sbatch --wrap).
local function directive_words(job, script)
   local words = {}
   local function add(line)
      for word in string.gmatch(line, "%S+") do
         table.insert(words, word)
      end
   end
   for line in string.gmatch("\n" .. script, "\n#RLALLOC[ \t]+([^\n]*)") do
      add(line)
   end
   add(string.match(text(job.comment), "^rlalloc:%s*(.*)$") or "")
   return words
end

-- Lines that do something: no comment may make an ordinary job an LLM job.
local function commands_of(script)
   local lines = {}
   for line in string.gmatch(script, "[^\n]+") do
      if not string.match(line, "^%s*#") then
         table.insert(lines, line)
      end
   end
   return table.concat(lines, "\n")
end

local function class_of(intercept, words, script)
   for _, word in ipairs(words) do
      local class = string.match(word, "^class=(%l+)$")
      if class ~= nil then
         return class
      end
   end
   local commands = commands_of(script)
   for _, known in ipairs(intercept.classes) do
      if string.find(commands, known.command, 1, true) then
         return known.class
      end
   end
   return #words > 0 and "train" or nil
end

local function partitions_of(job, part_list)
   if text(job.partition) ~= "" then
      return job.partition
   end
   for name, partition in pairs(part_list or {}) do
      if partition.flag_default == 1 then
         return name
      end
   end
   return ""
end

local function all_in(list, set)
   if set == nil then
      return false
   end
   if set["*"] then
      return true
   end
   local any = false
   for word in string.gmatch(list, "[^,]+") do
      any = true
      if not set[word] then
         return false
      end
   end
   return any
end

local function rule_for(intercept, job, part_list, class)
   local partitions = partitions_of(job, part_list)
   local account = text(job.account) ~= "" and job.account or text(job.default_account)
   for _, rule in ipairs(intercept.rules) do
      if all_in(partitions, rule.partitions) and all_in(account, rule.accounts) and all_in(class, rule.classes) then
         return rule
      end
   end
   return nil
end

-- Words that could forge a part of the tag are dropped; the daemon then sees that something is missing.
local function ask_of(words)
   local clean = {}
   for _, word in ipairs(words) do
      table.insert(clean, (string.gsub(word, "[^%w=,.%-]", "?")))
   end
   return string.sub(table.concat(clean, "+"), 1, MAX_ASK)
end

local function warn_of_unknown_words(words)
   for _, word in ipairs(words) do
      if not DIRECTIVES[string.match(word, "^([^=]+)=") or ""] then
         slurm.log_user("rlalloc: '%s' in #RLALLOC is not understood, the job runs as submitted. "
            .. "Known: gpus= cpus-per-gpu= mem-per-gpu= gpu-multiple= launch= class=", word)
      end
   end
end

local function why_left_alone(job, script)
   if script == "" then
      return "no batch script"
   elseif not asks_for_gpus(job) then
      return "no GPUs"
   elseif text(job.array_inx) ~= "" then
      return "a job array"
   elseif number(job.het_job_offset) ~= nil then
      return "a heterogeneous job"
   elseif (number(job.deadline) or 0) > 0 then
      return "a deadline"
   end
   return nil
end

local function touch_wake_file()
   local file = io.open(runtime_directory .. "/wake", "w")
   if file ~= nil then
      file:write("1")
      file:close()
   end
end

-- When the job is to begin if nobody comes: its own time if that is later, else after the grace.
local function defer(job, grace)
   local user_begin = number(job.begin_time) or 0
   local begin = math.max(user_begin, os.time() + grace)
   job.begin_time = begin
   job.environment["RLALLOC_JOB"] = "1"
   return begin, user_begin
end

local function intercept_job(job, part_list)
   local script = string.sub(text(job.script), 1, MAX_SCRIPT)
   if why_left_alone(job, script) ~= nil then
      return
   end
   local intercept = read_intercept()
   if intercept == nil then
      return
   end
   local words = directive_words(job, script)
   local class = class_of(intercept, words, script)
   local rule = class and rule_for(intercept, job, part_list, class)
   if not rule or (rule.mode ~= "shadow" and rule.mode ~= "enforce") then
      return
   end
   warn_of_unknown_words(words)
   local begin, user_begin = 0, number(job.begin_time) or 0
   local held = number(job.priority) == 0
   if rule.mode == "enforce" and not held then
      begin, user_begin = defer(job, intercept.grace)
   end
   local tag = string.format("rlalloc:v=1;mode=%s;rule=%s;class=%s;begin=%d;user_begin=%d;ask=%s",
      rule.mode, rule.name, class, begin, user_begin, ask_of(words))
   local before = text(job.admin_comment)
   job.admin_comment = before == "" and tag or (before .. " " .. tag)
   touch_wake_file()
end

function rlalloc.job_submit(job_desc, part_list, _submit_uid)
   local fine, problem = pcall(intercept_job, job_desc, part_list)
   if not fine then
      pcall(slurm.log_error, "rlalloc: a job passes untouched: %s", tostring(problem))
   end
end

return rlalloc
