--- rlalloc in slurmctld: recognises LLM jobs at submission, tags them and defers them for rlallocd.
--
-- A site's own job_submit.lua calls it (Slurm 22.05 and later; Lua 5.1 as on Debian 12, to 5.4):
--
--    local rlalloc = dofile("/usr/lib/rlalloc/rlalloc.lua")
--    rlalloc.job_submit(job_desc, part_list, submit_uid)   -- last, before it returns slurm.SUCCESS
--    local refusal = rlalloc.job_modify(job_desc, job_rec, modify_uid)   -- first in slurm_job_modify
--    if refusal then return refusal end
--
-- It runs under slurmctld's locks: no sockets, no waiting, one small file is read. It rejects no submission and fails
-- open: without a valid <runtime>/intercept, or on any error, a job passes as it was submitted. README.md tells
-- what it touches.

local M = {}

-- Looked up once: the loops below run under locks.
local byte, find, gmatch, gsub, match = string.byte, string.find, string.gmatch, string.gsub, string.match
local lower, rep, reverse, sub = string.lower, string.rep, string.reverse, string.sub
local concat, floor, max, min = table.concat, math.floor, math.max, math.min

local RUNTIME_DIRECTORY = os.getenv("RLALLOC_RUNTIME_DIRECTORY") or ""
if RUNTIME_DIRECTORY == "" then
   RUNTIME_DIRECTORY = "/run/rlalloc"
end
local INTERCEPT_FILE = RUNTIME_DIRECTORY .. "/intercept"
local WAKE_FILE = RUNTIME_DIRECTORY .. "/wake"

local UPTIME_FILE = "/proc/uptime"

local VERSION = "0.2.0" -- of rlalloc: `rlalloc doctor` compares it

local INTERCEPT_HEADER = "rlalloc-intercept 5"
local TIMES_OF_INTERCEPT = "^([^\n]*)\nexpires (%d+)\nuptime (%d+)\n()"
local INTERCEPT_BYTES = 65536
local SCRIPT_BYTES = 16384 -- what is read of a script: slurmctld accepts 4 MB, and all of it waits
local UNCUT_BYTES = 6144 -- of that, without comment lines
local CODE_BYTES = 4096 -- of that, without what echo prints: what a class is known by
local WORDS_BYTES_OF_CODE = 1536 -- of a longer code, the words are not read
local FINGERPRINT_BYTES = 256 -- at the beginning, and as many at the end
local MOST_HASHES = 80 -- of comment lines and others
local MOST_INDENTED = 20 -- of these behind a blank
local INDENTED_BYTES = 64
local MOST_ECHOES = 10
local MOST_EFFORT = 80 -- of all that is looked at in one script for its words, as counted below
local EFFORT_OF_LINE, EFFORT_OF_ECHO, EFFORT_OF_SRUN, EFFORT_OF_TEST = 4, 2, 3, 3 -- 1 for what is not named here
local EFFORT_OF_VALUE, EFFORT_OF_VARIABLE, EFFORT_OF_UNCLEAN, EFFORT_OF_FILE, EFFORT_IN_PYTHON = 3, 3, 6, 4, 2
local EFFORT_OF_NAME = 2 -- of no table, that may be a count's; a variable's that is neither expanded nor assigned
local MOST_WORDS = 12 -- of the directives: twice as many as there are
local MOST_TIMES = 8 -- occurrences of one command, option, loop or kind of file that are looked at
local MOST_VARIABLES = 12
local MOST_PLACES = 24 -- of a variable's name, alone or inside of a longer one
local MOST_SUMS = 2
local MOST_TERMS = 4 -- names in a sum
local MOST_STEPS = 3
local MOST_TESTS = 4 -- conditions of one kind
local MOST_NAMES = 4 -- in one condition
local LINE_BYTES = 400
local BYTES_OF_EFFORT = 16 -- of the line of an srun, and of a value that is unclean: for an effort of 1
local NUMBERS_OF_EFFORT = 4 -- for an effort of 1: values that may be counts, of names that no table has; places of a name
local VALUE_BYTES = 100
local TOKEN_BYTES = 60
local TEST_BYTES = 120
local ARITHMETIC_BYTES = 64
local WORDS_BYTES = 2000
local FILE_SUFFIXES = {".yaml", ".yml", ".toml", ".json", ".sh"}
local IN_SHELL = "%${?([a-zA-Z_][a-z_A-Z0-9]*)" -- a variable
local TESTS = {
   {text = "[ ", inside = "^[^\n%]]*", names = IN_SHELL, in_brackets = true},
   {text = "((", inside = "^[^\n)]*", names = "%$?{?([a-zA-Z_][a-z_A-Z0-9]*)", in_arithmetic = true},
   {text = "test ", inside = "^[^\n;]*", names = IN_SHELL},
   {text = "case ", inside = "^[^\n;]*", names = IN_SHELL},
}
local PYTHON_SIZES = {"device_count()", "world_size"}
local PYTHON_ENVIRONMENT = {
   "os.environ",
   "getenv",
   assigns = "^%[[^\"'\n][^\n%]]*%]+[ \t]*=[^=]", -- os.environ[name] = value
   calls = "^%.([a-z]+)%([ \t]*{?[ \t]*[a-zA-Z_*][a-zA-Z0-9_.]*[ \t]*[^a-zA-Z0-9_. \t=]", -- os.environ.update(names)
}
local IN_PYTHON = "^[a-z.]*[%[(][\"']([a-zA-Z0-9_]+)[\"'][^\n)%]]*[%])]+[ \t]*[=!<>]"
local OFTEN = " e-t_aorinslcd=/pmu$g\n" -- the most frequent characters of scripts, roughly
local SAMPLED_BYTES = 1024 -- of a longer code, samples show which bytes are frequent
local MOST_FALSE = 3 -- places that only look like a text
local MOST_FREQUENT = 1 -- texts with a frequent first byte whose end stands too often: with more, the search stops
local PARTS_OF_NAMES = {
   counts = {"gpu", "parallel", "world", "replica"},
   others = {"mem", "batch", "block", "worker"},
}
local CLEAN = "^[%w_$./=,:{}()*-]*$" -- a value; what is frequent comes first: a set is gone through
local UNCLEAN = "[^%w_$./=,:{}()*-]"
local MOST_BYTES = {
   fields = 1024, -- of partitions, account, GRES, admin comment and what it inherits: a job with more passes as submitted
   tres = 512, -- of all lists of GRES
   directives = 1024, -- of all #RLALLOC lines and a comment, blanks with them
}
local MOST_ITEMS = 20 -- of a list of partitions, of all lists of GRES, and of what a job inherits: each costs time
local SAMPLES = 32 -- bytes by which a text is seen to be no script
local MOST_ALIKE = 11
local SQUARES = {}
for number = 1, SAMPLES do
   SQUARES[number] = number * number * 37
end
local ASK_BYTES = 400
local MOST_COMPLAINTS = 5 -- mistakes that a user reads about at once
local SHOWS_A_MODEL = {"model", "tensor", "pipeline", "tp", "pp", "serve", "hidden-size"} -- as in rlallocd.knowledge.job_plans
local SAME_ERROR_AGAIN_S = 600

local KNOWN_WORDS = {"gpus", "cpus-per-gpu", "mem-per-gpu", "gpu-multiple", "launch", "class"}
local LEAVE_ALONE = "off" -- the one word without a value
local LARGEST_NUMBER = 1e9
local CLASSES = {train = true, finetune = true, serve = true}
local GIB_PER_UNIT = {K = 1 / 1024 ^ 2, M = 1 / 1024, [""] = 1 / 1024, G = 1, T = 1024}
local LEAST_MEM_GIB = 1 -- LEAST_DECLARED_MIB_PER_GPU of core/rlalloc/bounds.py
local MODES = {off = true, shadow = true, enforce = true}
local TRES_FIELDS = {"tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "gres"}
local OTHER_FIELDS = {"partition", "account", "default_account", "admin_comment"} -- that are searched

-- Slurm's marks of a number that nobody set (slurm.h): NO_VAL, INFINITE and those of 16 bits. From NO_VAL on
-- nothing is a number: those of 64 bits reach Lua rounded.
local NO_VAL = 4294967294
local NO_VAL16 = 65534
local INFINITE16 = 65535
local EXCLUSIVE = 0 -- of a job's `shared` (JOB_SHARED_NONE)
local FORCE = 32768 -- added to a partition's `max_share` (SHARED_FORCE)

local NEWLINE, DOLLAR, DASH, BACKSLASH = 10, 36, 45, 92 -- bytes
local IS_BLANK = {[9] = true, [10] = true, [11] = true, [12] = true, [13] = true, [32] = true}
local IS_INSIDE_WORD = {}
for character in gmatch("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.$-", ".") do
   IS_INSIDE_WORD[byte(character)] = true
end
local NAME_BACKWARDS = "^[a-z_.A-Z0-9$-]+"
local NAME_BEFORE = "^[ \t]*[\"']?([a-z_.A-Z0-9$-]+)()" -- a setting's, backwards from its = or :
local ENDS_VALUE = {}
for character in gmatch("\t\n\v\f\r ;|&\"'`()", ".") do
   ENDS_VALUE[byte(character)] = true
end
local MAY_STAND_BETWEEN = {[9] = true, [32] = true, [34] = true, [39] = true} -- a name and its = or :
local IS_OF_NAME = {[35] = true, [DOLLAR] = true, [123] = true} -- and what stands in a name
for character in gmatch("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", ".") do
   IS_OF_NAME[byte(character)] = true
end
local MAY_STAND_BEFORE_ARGUMENT = {[9] = true, [32] = true, [34] = true, [39] = true, [61] = true}
local ENDS_ARGUMENT = {}
for character in gmatch(" \t\n\r\"';<>|&", ".") do
   ENDS_ARGUMENT[byte(character)] = true
end
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

-- Errors

local report -- a block of its own: Lua has room for 200 local variables
do
   local last_error, last_error_time

   function report(what, problem)
      problem = tostring(problem):sub(1, 300)
      local now = os.time()
      if problem == last_error and now < last_error_time + SAME_ERROR_AGAIN_S then
         return
      end
      last_error, last_error_time = problem, now
      slurm.log_error("rlalloc: %s: %s", what, problem)
   end
end

--- Seconds since this machine was started, to the hundredth; nil where the system does not show them.
local function uptime()
   local file = io.open(UPTIME_FILE, "r")
   if file == nil then
      return nil
   end
   local text = file:read(64) or ""
   file:close()
   return tonumber(text:match("^%d+%.?%d*"))
end

-- Updates

do
   local STATUS_FILE = "/proc/self/status" -- of slurmctld
   local LIMITED_BY = {"qos", "partition", "account"} -- slurmctld checks the limits of these
   local NOTE = "rlalloc-decision:" -- as in rlallocd.submissions.job_tag
   local REFUSAL = "rlalloc: job %.0f was changed by rlalloc, so Slurm would not check the limits of another QOS, "
      .. "partition or account: cancel it and submit it again, or have it moved by root or SlurmUser"

   --- Whether slurmctld runs as this user: then it is SlurmUser.
   local function is_slurm_user(uid)
      local file = io.open(STATUS_FILE, "r")
      if file == nil then
         return false
      end
      local text = file:read(4096)
      file:close()
      return tonumber((text or ""):match("\nUid:%s+%d+%s+(%d+)")) == uid
   end

   --- Whether an update moves a job that we have changed to where slurmctld would not check limits: it takes what
   -- rlallocd has set for an administrator's word. Lua does not see who else is an operator.
   local function moves_a_changed_job(job_desc, job_rec, modify_uid)
      local moves = false
      for _, field in ipairs(LIMITED_BY) do
         local value = job_desc[field] -- "" stands for the default
         moves = moves or value ~= nil and value ~= job_rec[field]
      end
      if not moves or modify_uid == 0 or not find(text_of(job_rec, "admin_comment") or "", NOTE, 1, true) then
         return false
      end
      return not is_slurm_user(modify_uid)
   end

   -- rlallocd reads a job, decides, and updates it; Slurm has no update that depends on what was read. So in an
   -- update of rlallocd's, the AdminComment ends with the uptime at which it read the job. The update is refused if
   -- others may have changed the job since, or if it has started. Otherwise this note is removed.
   local READING, READING_BYTES = "()[; ]rlalloc%-read:(%d+%.?%d*)$", 48 -- as in rlallocd.submissions.job_tag
   local TAG = "rlalloc:v=1;"
   local STALE = 116 -- ESTALE ("Stale file handle"): rlallocd.slurm knows this refusal by it
   local BUSY = 11 -- EAGAIN ("Resource temporarily unavailable")
   local UNVERIFIED_S = 5 -- at most, from rlallocd's update to the release
   local RESETS_AGE = 2 ^ 21 -- of bitflags (RESET_ACCRUE_TIME): scontrol sets it together with rlallocd's begin time
   local MOST_JOBS = 5000 -- in each of two tables: about 1 MB
   local SIZE = {
      "min_nodes", "max_nodes", "num_tasks", "ntasks_per_node", "cpus_per_task", "min_cpus", "pn_min_cpus",
      "min_mem_per_node", "min_mem_per_cpu", "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket",
      "cpus_per_tres", "mem_per_tres",
   }
   local BESIDE = {
      "time_limit", "shared", "exc_nodes", "req_nodes", "features", "reservation", "account", "qos", "partition",
   }
   local NICE = {"nice"} -- apart, because tools may set it again and again; only an update that sets it is refused
   local STALE_UPDATE = "rlalloc: job %.0f: an update of rlallocd is refused: the job may have changed since it was read"
   local BUSY_NOW = "rlalloc: job %.0f is being changed by rlalloc: try again in a few seconds"

   -- Of each job, by its id: when others changed it, its nice and its begin time last, and since when, and when last,
   -- rlallocd has changed it without having begun it since. The jobs that were not changed for longest are forgotten.
   local recent, earlier, count = {}, {}, 0
   local loaded = uptime() or 0 -- nothing is known of what others changed before
   local last_comment, last_read -- of the last update of rlallocd's that passed; slurmctld shows it for each array task

   --- What is remembered of a job; the caller may change it.
   local function memory_of(job_id)
      local known = recent[job_id]
      if known == nil then
         if count >= MOST_JOBS then
            recent, earlier, count = {}, recent, 0
         end
         known = earlier[job_id] or {}
         recent[job_id], count = known, count + 1
      end
      return known
   end

   local function sets(job_desc, fields)
      for _, field in ipairs(fields) do
         local value = job_desc[field]
         if value ~= nil and value ~= NO_VAL and value ~= NO_VAL16 then
            return true
         end
      end
      return false
   end

   --- The reading on which an update of rlallocd's is based, and its AdminComment without that; nil for all others.
   local function reading_of(comment)
      if comment == nil then
         return nil
      elseif comment == last_comment then
         return last_read, comment
      end
      local tail = max(1, #comment - READING_BYTES)
      local start, read = match(sub(comment, tail), READING)
      if start == nil then
         return nil
      end
      return tonumber(read), sub(comment, 1, tail + start - 2)
   end

   --- Whether a job has started. Some tasks of an array may have, while others wait.
   local function has_started(job_rec)
      return (number_of(job_rec, "array_job_id") or 0) == 0 and (number_of(job_rec, "job_state") or 0) % 256 ~= 0
   end

   --- Whether rlallocd may update a job: it has not started, and nobody else has changed it since that reading.
   local function admits_update(job_desc, job_rec, read, comment)
      local known, now = memory_of(job_rec.job_id), uptime() or 0
      if read < loaded or has_started(job_rec) then
         return false
      end
      local changed = max(known.changed or -1, known.begin or -1)
      if changed >= read or ((known.niced or -1) >= read and sets(job_desc, NICE)) then
         return false
      end
      if known.ours == nil or now - known.ours > UNVERIFIED_S then
         known.since = now
      end
      known.ours = now
      job_desc.admin_comment, last_comment, last_read = comment, comment, read
      return true
   end

   --- Whether rlallocd may begin a job. It may not, once, if others have set the begin time: then it reads the job
   -- again.
   local function admits_release(job_id)
      local known = recent[job_id] or earlier[job_id]
      if known == nil then
         return true
      elseif known.begin then
         known.begin = nil
         return false
      end
      known.ours = nil
      return true
   end

   --- Whether others may update a job; remembers it then. They may not, for some seconds, if the job's user sets its
   -- size after rlallocd: rlallocd would have to restore the request, and the user's value would mostly be lost.
   local function admits_others(job_desc, job_rec, modify_uid)
      if not find(text_of(job_rec, "admin_comment") or "", TAG, 1, true) then
         return true
      end
      local resizes, begins = sets(job_desc, SIZE), (number_of(job_desc, "begin_time") or 0) ~= 0
      local changes, renices = resizes or sets(job_desc, BESIDE), sets(job_desc, NICE)
      local now = (changes or renices or begins) and uptime()
      if not now then
         return true
      end
      local known = memory_of(job_rec.job_id)
      local is_unverified = known.ours ~= nil and now >= known.ours and now - known.since < UNVERIFIED_S
      if resizes and is_unverified and modify_uid == job_rec.user_id then
         return false
      end
      known.begin = begins and now or known.begin
      known.changed = changes and now or known.changed
      known.niced = renices and now or known.niced
      return true
   end

   --- The error code with which an update is refused, or nil.
   local function refusal_of(job_desc, job_rec, modify_uid)
      local job_id = job_rec.job_id
      if moves_a_changed_job(job_desc, job_rec, modify_uid) then
         pcall(slurm.log_user, REFUSAL, job_id) -- 22.05 does not show it to the user, but logs it
         return slurm.ESLURM_ACCOUNTING_POLICY or slurm.ERROR
      end
      local given = text_of(job_desc, "admin_comment")
      local read, comment = reading_of(given)
      local begins = given == nil
         and (number_of(job_desc, "begin_time") or 0) ~= 0
         and floor((job_desc.bitflags or 0) / RESETS_AGE) % 2 == 1
         and modify_uid ~= job_rec.user_id
      if read ~= nil or begins then
         local admitted
         if begins then
            admitted = admits_release(job_id)
         else
            admitted = admits_update(job_desc, job_rec, read, comment)
         end
         if admitted then
            return nil
         end
         pcall(slurm.log_info, STALE_UPDATE, job_id)
         return STALE
      elseif not admits_others(job_desc, job_rec, modify_uid) then
         pcall(slurm.log_user, BUSY_NOW, job_id)
         return BUSY
      end
      return nil
   end

   --- Call it for each update, before the site's own rules. Returns an error code if the update is to be refused, else
   -- nil. Raises nothing.
   function M.job_modify(job_desc, job_rec, modify_uid)
      local ok, refusal = pcall(refusal_of, job_desc, job_rec, modify_uid)
      if not ok then
         pcall(report, "update of a job passed", refusal)
         return nil
      end
      return refusal
   end
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

local SEARCH = {}
do -- a Lua function has room for 200 local names
   local LEAST_PART, LEAST_OTHER = 4, 3 -- characters of a text that are searched for at once
   local RANKS_OF_SAME = 6 -- a character is so much less wanted for each text that may be searched for by it
   local FREQUENT, MOST_SAMPLES = 4, 16
   local shift = 0 -- of the samples: another one each time, so that nobody can write a text around them

   --- The part of a text from a place on, by which the text is searched for: the plain search visits each place of the
   -- part's first byte.
   function SEARCH.part(text, at)
      return {text = text, part = sub(text, at), head = sub(text, 1, at - 1), before = at - 1, first = byte(text, at)}
   end

   --- Where a text's rarest character stands that is not the excepted one; nil for none.
   local function rarest_place(text, least_part, used, except)
      local rarest, least = nil, math.huge
      for at = 1, max(1, #text - least_part + 1) do
         local character = sub(text, at, at)
         local often = find(OFTEN, character, 1, true)
         local rank = (often and #OFTEN - often + 2 or 1) + RANKS_OF_SAME * (used[character] or 0)
         if rank < least and character ~= except then
            rarest, least = at, rank
         end
      end
      return rarest
   end

   --- A text to search for: the part from its rarest character, and another one for a code in which that is frequent.
   -- `used` counts the texts by both: not many are to be searched for by the same two.
   function SEARCH.text(text, used)
      local first = rarest_place(text, LEAST_PART, {})
      local search, character = SEARCH.part(text, first), sub(text, first, first)
      used = used or {}
      local other = rarest_place(text, LEAST_OTHER, used, character)
      if other then
         search.other = SEARCH.part(text, other)
         used[sub(text, other, other)] = (used[sub(text, other, other)] or 0) + 1
      end
      used[character] = (used[character] or 0) + 1
      return search
   end

   --- The bytes, blanks aside, that are frequent among some samples of a text, and how often; nil if there are none, and
   -- for a shorter text.
   function SEARCH.frequent(text, least_bytes)
      local counts, frequent, length = {}, nil, #text
      if length < least_bytes then
         return nil
      end
      shift = (shift + 7919) % 65536
      for number = 1, MOST_SAMPLES do
         local sample = byte(text, (SQUARES[number] + shift) % length + 1)
         local count = (counts[sample] or 0) + 1
         counts[sample] = count
         if count >= FREQUENT and sample ~= 32 then
            frequent = frequent or {}
            frequent[sample] = count
         end
      end
      return frequent
   end

   --- Of a text's parts, the first one that begins with a byte that is not frequent, or with the least frequent one.
   function SEARCH.seldom(parts, frequent)
      local chosen, least = parts[1], math.huge
      for number = 1, frequent and #parts or 0 do
         local count = frequent[parts[number].first] or 0
         if count < least then
            chosen, least = parts[number], count
         end
      end
      return chosen
   end

   --- The part by which a text is searched for whose usual part begins with a frequent byte.
   function SEARCH.part_for(search, frequent)
      local other = search.other
      return other and (frequent[other.first] or 0) < frequent[search.first] and other or search
   end
end

--- Where a text stands from a place on; nil where it does not.
local function find_text(code, search, from, frequent)
   local part = frequent and frequent[search.first] and SEARCH.part_for(search, frequent) or search
   local before = part.before
   if before == 0 then
      return find(code, search.text, from, true)
   end
   local at = find(code, part.part, from + before, true)
   for _ = 1, MOST_FALSE do
      if at == nil then
         return nil
      elseif sub(code, at - before, at - 1) == part.head then
         return at - before
      end
      at = find(code, part.part, at + 1, true)
   end
   if at and frequent and frequent[byte(search.text)] then
      frequent.searched = (frequent.searched or 0) + 1
      if frequent.searched > MOST_FREQUENT then
         return nil
      end
   end
   return at and find(code, search.text, at - before, true) -- the part stands there too often
end

local SRUN = SEARCH.text("srun")

local table_of_words = {} -- read once for each text of its lines, not each time that the file is renewed

--- The table of words: long options, short options by command, options with one dash, settings, launchers.
local function read_table(words, launchers)
   if words == table_of_words.words_line and launchers == table_of_words.launchers_line then
      return table_of_words
   end
   local found = {options = {}, short = {srun = {}}, dashed = {}, settings = {}, launchers = {}}
   local used = {}
   found.words_line, found.launchers_line = words, launchers
   for entry in words:gmatch("[^|]+") do
      local long = entry:match("^%-%-(.+)$")
      local command, letter = entry:match("^([A-Za-z][A-Za-z0-9_.]*) %-([A-Za-z])$")
      if long then
         found.options[long] = word_name(entry)
         found.options[(long:gsub("-", "_"))] = word_name(entry)
      elseif command then
         found.short[command] = found.short[command] or {}
         found.short[command][letter] = word_name(entry)
      elseif entry:find("^%-") then
         found.dashed[#found.dashed + 1] = {text = entry, name = word_name(entry)}
      else
         found.settings[reverse(entry)] = word_name(entry)
      end
   end
   for entry in launchers:gmatch("[^|]+") do
      found.launchers[#found.launchers + 1] = {search = SEARCH.text(entry, used), name = word_name(entry)}
   end
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
      local list = name == "evaluate" and intercept.evaluations or intercept.commands
      list[#list + 1] = {class = name, search = SEARCH.text(text, intercept.used)}
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
   local intercept = {skipped_forms = {}, commands = {}, evaluations = {}, rules = {}, words = "", launchers = ""}
   intercept.used = {}
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

--- Whether rlallocd has not renewed the file for too long. The uptime decides that: a clock that was set back would
-- keep the file valid after the daemon's death. The time decides after a restart of the machine.
local function is_expired(intercept, now)
   local up = uptime()
   return now > intercept.expires or (up ~= nil and floor(up) > intercept.uptime)
end

local last_text, last_rest, last_intercept -- parsed once for each text, not once for each job

--- The intercept file's text as a table: where only its time is another, the table of before with that.
local function read_intercept(text)
   local header, expires, up, start = match(text, TIMES_OF_INTERCEPT)
   local rest = header == INTERCEPT_HEADER and sub(text, start) or nil
   if last_intercept ~= nil and rest ~= nil and rest == last_rest then
      last_intercept.expires, last_intercept.uptime = tonumber(expires), tonumber(up)
      return last_intercept
   end
   last_rest, last_intercept = nil, nil
   local intercept = parse_intercept(text)
   last_rest = rest
   return intercept
end

--- The intercept file if it is there, readable and not expired; else nil.
local function valid_intercept(now)
   local file = io.open(INTERCEPT_FILE, "r")
   if file == nil then
      return nil
   end
   local text = file:read(INTERCEPT_BYTES) or ""
   file:close()
   if text ~= last_text then
      last_text = nil
      last_intercept = read_intercept(text)
      last_text = text
   end
   if last_intercept == nil or is_expired(last_intercept, now) then
      return nil
   end
   return last_intercept
end

-- What kind of job it is

local function asks_for_gpus(job_desc)
   local items, left = 0, MOST_BYTES.tres
   for number = 1, #TRES_FIELDS do
      local value = text_of(job_desc, TRES_FIELDS[number])
      value = value and sub(value, 1, left) or ""
      left = left - #value
      if not (find(value, "gpu", 1, true) or find(value, "shard", 1, true)) then
         value = ""
      end
      for item in gmatch(value, "[^,]+") do
         items = items + 1
         if items > MOST_ITEMS then
            break
         end
         -- gpu:2, gres:gpu:a100:2, gres/gpu=2, shard:2; not gres:gpu_mem:4, nor none of them: gpu:0
         local name, last = match(item, "^([^:=]+)()", match(item, "^%s*gres[:/]()") or 1)
         if (name == "gpu" or name == "shard") and not find(item, "[:=]0+$", last) then
            return true
         end
      end
   end
   return (number_of(job_desc, "ntasks_per_tres") or 0) > 0 -- --ntasks-per-gpu alone: GPUs follow from the tasks
end

local directive_words, asks_for_deadline
do -- a Lua function has room for 200 local names
   -- A script as long as is read is searched for two texts, each by a part whose first byte is seldom there.
   local MARKS = {SEARCH.part("#RLALLOC", 1), SEARCH.part("#RLALLOC", 2), SEARCH.part("#RLALLOC", 4)}
   local DEADLINES = {SEARCH.part("--deadline", 6), SEARCH.part("--deadline", 1), SEARCH.part("--deadline", 5)}
   local MOST_DIRECTIVES = 16 -- lines
   local MOST_MENTIONS = 32 -- lines with #RLALLOC in them, wherever it stands

   --- The words of all #RLALLOC lines, then those of a comment `rlalloc: …`; nil if there is neither. And the effort.
   -- No more words are read than a tag has room for: one beyond them makes the tag too long.
   function directive_words(script, comment, frequent)
      local lines, count, mentions, others, effort = {}, 0, 0, 0, 0
      local mark = SEARCH.seldom(MARKS, frequent)
      local part, head = mark.part, mark.head
      local at = find(script, part, 1, true)
      while at do
         local start, last = at - #head, at + #part
         local is_mark = head == "" or (start > 0 and sub(script, start, at - 1) == head)
         local is_line = is_mark
            and (start == 1 or byte(script, start - 1) == NEWLINE)
            and IS_BLANK[byte(script, last) or NEWLINE]
         if is_mark then
            mentions = mentions + 1
         else
            others = others + 1
         end
         if mentions > MOST_MENTIONS or others > MOST_MENTIONS or (is_line and count == MOST_DIRECTIVES) then
            count = count + 1
            lines[count] = rep("_", ASK_BYTES + 1)
            break
         end
         local newline = is_mark and (find(script, "\n", at, true) or #script + 1)
         if is_line then
            count = count + 1
            lines[count] = sub(script, last, newline - 1)
            effort = effort + EFFORT_OF_LINE
         end
         at = find(script, part, newline or last, true)
      end
      effort = effort + mentions
      local asked = comment and match(sub(comment, 1, MOST_BYTES.directives + 1), "^%s*rlalloc:(.*)$")
      if asked then
         count = count + 1
         lines[count] = asked
      end
      if lines[1] == nil then
         return nil, effort
      end
      local text = concat(lines, " ")
      if #text > MOST_BYTES.directives or (asked and #comment > MOST_BYTES.directives) then
         text = sub(text, 1, MOST_BYTES.directives) .. " " .. rep("_", ASK_BYTES + 1)
      end
      local words, bytes, number = {}, 0, 0
      for word in gmatch(text, "%S+") do
         if bytes > ASK_BYTES or number > MOST_WORDS then
            break
         end
         number = number + 1
         words[number] = word
         bytes = bytes + #word + 1
      end
      return words, effort + EFFORT_OF_VALUE * number
   end

   --- Whether an #SBATCH line has a deadline, or may have one: not all of a script is looked at.
   function asks_for_deadline(script, frequent)
      local deadline = SEARCH.seldom(DEADLINES, frequent)
      local part, head = deadline.part, deadline.head
      local at, mentions, others = find(script, part, 1, true), 0, 0
      while at and mentions < MOST_TIMES and others < MOST_MENTIONS do
         local option = at - #head
         local is_option = option > 1 and byte(script, option - 1) == 32 and sub(script, option, at - 1) == head
         if is_option then
            mentions = mentions + 1
            local before = sub(script, max(1, option - LINE_BYTES), option - 1)
            local newline = find(reverse(before), "\n", 1, true)
            if newline == nil or find(before, "^#SBATCH", #before - newline + 2) then
               return true
            end
         else
            others = others + 1
         end
         at = find(script, part, at + 1, true)
      end
      return at ~= nil
   end
end

-- What the script says. rlalloc.scripts.script_words reads it alike in Python; a test holds the two together.

--- Whether a third of a long text is the same byte, blanks aside: to search that for words takes too long.
-- Squares, so that no regular text looks like one byte.
local function is_no_script(text)
   local length = #text
   if length < 32 * SAMPLES then
      return false
   end
   local counts = {}
   for number = 1, SAMPLES do
      local sample = byte(text, SQUARES[number] % length + 1)
      local count = counts[sample]
      counts[sample] = count and count + 1 or 1
      if count == MOST_ALIKE - 1 and sample ~= 32 then
         return true
      end
   end
   return false
end

--- Where the line begins whose first text stands at a place; nil where something else stands before it. A line that
-- is indented further than is looked at begins at its text.
local function line_start(text, at)
   local before = at > 1 and byte(text, at - 1) or NEWLINE
   if before == NEWLINE then
      return at
   elseif before ~= 32 and before ~= 9 then
      return nil
   end
   local from = max(1, at - INDENTED_BYTES)
   local part = sub(text, from, at - 1)
   local start = match(part, "^.*\n()[ \t]*$")
   if start then
      return from + start - 1
   end
   return find(part, "^[ \t]*$") and (at <= INDENTED_BYTES and 1 or at)
end

--- The script without comment lines, as far as it is read, whether no comment was left in it, and the effort.
local function without_comments(script, whole)
   local kept, count, start, at, hashes, indented = {}, 0, 1, find(script, "#", 1, true), 0, 0
   while at and hashes < MOST_HASHES do
      hashes = hashes + 1
      local line = at
      if at > start then
         local before = byte(script, at - 1)
         if before ~= NEWLINE then
            line = nil
            if before == 32 or before == 9 then
               indented = indented + 1
               if indented > MOST_INDENTED then
                  break
               end
               local is_first = at - start <= INDENTED_BYTES and match(script, "^[ \t]*()", start) == at
               line = is_first and start or line_start(script, at)
            end
         end
      end
      if line then
         if line > start then
            count = count + 1
            kept[count] = sub(script, start, line - 1)
         end
         start = (find(script, "\n", at, true) or #script) + 1
         at = find(script, "#", start, true)
      else
         at = find(script, "#", at + 1, true)
      end
   end
   kept[count + 1] = sub(script, start, start + UNCUT_BYTES) -- a byte more than is read
   return count == 0 and kept[1] or concat(kept), whole and at == nil, hashes + indented
end

--- Where what an echo prints ends, if nothing else stands on its line.
local function end_of_printed(code, from)
   -- Step by step: one pattern for blanks, an option and blanks would try every way to split a long run of blanks.
   if (find(code, "\n", from, true) or from + LINE_BYTES) - from >= LINE_BYTES then
      return nil
   end
   local begin = match(code, "^[ \t]*()", from)
   local option = match(code, "^%-?[neE]*()", begin)
   begin = option > begin and match(code, "^[ \t]*()", option) or begin
   local text, last = match(code, "^\"([^\"`\\\n]*)\"[ \t]*\r?()\n", begin)
   if text then
      return not find(text, "$(", 1, true) and last
   end
   return match(code, "^'[^'\n]*'[ \t]*\r?()\n", begin)
      or match(code, "^[^\"'`\\|>;&\n(]*()\n", from)
end

--- The code without what an echo on a line of its own prints, and the effort: text for people may name any command.
local function without_echoes(code)
   local at = find(code, "echo ", 1, true)
   if at == nil then
      return code, 0
   end
   local kept, count, start, echoes = {}, 0, 1, 0
   while at and echoes < MOST_ECHOES do
      echoes = echoes + 1
      local last = line_start(code, at) and end_of_printed(code, at + 5)
      if last then
         count = count + 1
         kept[count] = sub(code, start, at - 1)
         start = last
      end
      at = find(code, "echo ", max(start, at + 5), true)
   end
   kept[count + 1] = sub(code, start)
   return concat(kept), EFFORT_OF_ECHO * echoes
end

--- What is read of a script, whether that is all of it, and the effort. Empty where it is no script.
local function code_of(script, whole)
   local code, effort, for_echoes
   code, whole, effort = without_comments(script, whole)
   if #code > UNCUT_BYTES then
      code, whole = sub(code, 1, UNCUT_BYTES), false
   end
   code, for_echoes = without_echoes(code)
   if #code > CODE_BYTES then
      code, whole = sub(code, 1, CODE_BYTES), false
   end
   if is_no_script(code) then
      return "", false, 0
   end
   return code, whole and #code <= WORDS_BYTES_OF_CODE, effort + for_echoes
end

--- Where each text stands in the code for the first time, false where it does not: searched for once. `frequent` are
-- bytes that are frequent in the code.
local function first_places(code)
   local by_text, frequent = {}, SEARCH.frequent(code, SAMPLED_BYTES)
   return setmetatable({frequent = frequent or false}, {
      __index = function(places, search)
         local text = search.text
         local at = by_text[text]
         if at == nil then
            at = find_text(code, search, 1, frequent) or false
            by_text[text] = at
         end
         places[search] = at
         return at
      end,
   })
end

--- Whether a word may begin here: neither a letter, digit, dot, dash or $ stands before.
local function begins_word(code, at)
   return at == 1 or not IS_INSIDE_WORD[byte(code, at - 1)]
end

--- A text without the bytes at its end that are in a set.
local function without_last(text, set)
   local last = #text
   while set[byte(text, last)] do
      last = last - 1
   end
   return sub(text, 1, last)
end

--- The value in quotes or in $(…), or the array of the words of one text, that begins here; nil where there is none of
-- these, _ where its end is too far.
local function enclosed_value(part)
   local first, last = byte(part, 1), nil
   if first == 34 or first == 39 then -- " '
      last = find(part, first == 34 and '"' or "'", 2, true)
      return last and sub(part, 2, last - 1) or "_"
   elseif first == 96 then -- `
      last = find(part, "`", 2, true)
      return last and "$(" .. sub(part, 2, last - 1) .. ")" or "_"
   elseif find(part, "^%$%(%(") then
      last = find(part, "))", 1, true)
      return last and sub(part, 1, last + 1) or "_"
   elseif find(part, "^%$%(") then
      last = find(part, ")", 1, true)
      return last and sub(part, 1, last) or "_"
   elseif first == 40 then -- (
      local words = match(part, "^%([ \t]*(%$%([^()\n]*%))[ \t]*%)")
         or match(part, "^%([ \t]*(%${?[a-zA-Z_][a-z_A-Z0-9]*}?)[ \t]*%)")
      return words and "(" .. words .. ")"
   end
end

--- The value that begins here; _ for one that is too long to be read, nil where there is none.
local function value_at(code, start)
   local usual, last = match(code, "^([a-zA-Z0-9_./$-]+)()", start)
   if usual and IS_BLANK[byte(code, last) or NEWLINE] and usual ~= "$" and last - start < VALUE_BYTES then
      return usual
   end
   local part = sub(code, start, start + VALUE_BYTES - 1)
   local value
   value, last = match(part, "^([%w_./=,:$%[%]{}-]+)()")
   if value == nil or not ENDS_VALUE[byte(part, last) or NEWLINE] then
      value = match(part, "^[^%s;|&\"'`()]+") -- a set is gone through: this one takes longer
   end
   if value == nil or value == "$" then
      return enclosed_value(part)
   elseif value == "\\" then
      return nil
   elseif value == "int" then
      local variable = match(part, "^int%(os%.[a-z.]+[%[(][\"']([A-Za-z0-9_]+)[\"'][%])]%)")
      return variable and "$" .. variable or value
   elseif #value == VALUE_BYTES then
      return "_"
   end
   last = byte(value, -1)
   if ENDS_OF_LISTS[last] or ENDS_OF_TABLES[last] then
      value = without_last(value, ENDS_OF_LISTS)
      return find(value, "{", 1, true) and value or without_last(value, ENDS_OF_TABLES)
   end
   return value
end

--- Count what is looked at; false where it is too much.
local function spend(found, effort)
   effort = found.effort + effort
   found.effort = effort
   return effort <= MOST_EFFORT
end

--- Whether the name that stands here may be set: by a command that has it for an argument, or in arithmetic.
local function changes_at(code, at, last)
   local before, after = byte(code, at - 1), byte(code, last)
   local rest = sub(code, last, last + 3)
   if after == 91 or find(rest, "^ ?[*/%%&|^+-]=") or find(rest, "^ ?%+%+") or find(rest, "^ ?%-%-") then
      return true -- N[0]=4, N+=1, N++
   elseif before == 43 and byte(code, at - 2) == 43 or before == DASH and sub(code, max(1, at - 3), at - 1) == "(--" then
      return true
   elseif
      not MAY_STAND_BEFORE_ARGUMENT[before]
      or not ENDS_ARGUMENT[after or NEWLINE]
      or find(rest, "^ [*/)]")
      or find(rest, "^ [%%+-][ 0-9$(]")
      or find(rest, "^[\"'] ?:")
   then
      return false -- an operand, or a key
   end
   return sub(code, max(1, at - 7), at - 1) ~= "export " and not find(sub(code, max(1, at - 2), at - 1), "^[%[(][\"']$")
end

--- Whether something other than name=value may set a variable. Where its name stands more often than is looked at, too
-- much effort is counted.
local function is_changed(code, name, found)
   local at, count = find(code, name, 1, true), 0
   while at do
      if count == MOST_PLACES then
         spend(found, MOST_EFFORT)
         return true
      end
      count = count + 1
      local last = at + #name
      local after = byte(code, last)
      if not IS_OF_NAME[at > 1 and byte(code, at - 1)] and not IS_OF_NAME[after] and after ~= 61 then
         spend(found, EFFORT_OF_NAME)
         if changes_at(code, at, last) then
            return true
         end
      end
      at = find(code, name, last, true)
   end
   spend(found, floor(count / NUMBERS_OF_EFFORT))
   return false
end

--- What the script assigns to variables: `values` by name, false where that is unsure; `places` and `more` are where.
-- `changed` are names looked up that it does not assign, and changes otherwise.
local function new_variables(places, more, unsure, found)
   return {values = unsure, places = places, more = more, changed = {}, found = found, sums = 0, looked_up = 0}
end

--- What the script assigns to a variable; false if it does not, differently at different places, or if it may be set
-- in another way.
local function assigned(code, name, variables)
   local values = variables.values
   local known = values[name]
   if known ~= nil or variables.looked_up >= MOST_VARIABLES then
      return known or false
   end
   variables.looked_up = variables.looked_up + 1
   local value = false
   local backwards = reverse(name)
   local places = variables.places[backwards]
   if places then
      value = value_at(code, places) or false
      places = variables.more[backwards]
      for number = 1, places and #places or 0 do
         if number == MOST_TIMES or value ~= (value_at(code, places[number]) or false) then
            value = false
            break
         end
      end
   end
   if is_changed(code, name, variables.found) then
      value = false
      if not variables.places[backwards] then
         variables.changed[#variables.changed + 1] = name
      end
   end
   values[name] = value
   return value
end

--- Follow a variable to its value, through at most MOST_STEPS assignments.
local function followed(code, value, name, variables)
   for _ = 1, MOST_STEPS do
      local found = name and assigned(code, name, variables)
      if not found then
         break
      end
      value = found
      name = byte(value) == DOLLAR and match(value, "^%${?([a-zA-Z_][a-z_A-Z0-9]*)}?$")
   end
   return value
end

--- What the script assigns, in the place of a variable, also inside of $((…)). ${#N[@]} is what counts the words of the
-- command that fills the array: $(command | wc -w).
local function resolved(code, value, variables)
   value = followed(code, value, match(value, "^%${?([a-zA-Z_][a-z_A-Z0-9]*)}?$"), variables)
   local array = sub(value, 1, 3) == "${#" and match(value, "^([a-zA-Z_][a-z_A-Z0-9]*)%[[@*]%]}$", 4)
   array = array and assigned(code, array, variables)
   if array and sub(array, 1, 2) == "($" then
      local words = sub(array, 2, -2)
      words = followed(code, words, match(words, "^%${?([a-zA-Z_][a-z_A-Z0-9]*)}?$"), variables)
      return find(words, "^%$%([^(]") and sub(words, 1, -2) .. " | wc -w)" or value
   end
   if sub(value, 1, 3) ~= "$((" or #value > ARITHMETIC_BYTES or variables.sums == MOST_SUMS then
      return value
   end
   variables.sums = variables.sums + 1
   return "$((" .. gsub(gsub(sub(value, 4), "[ \t$]", ""), "[a-zA-Z_][a-z_A-Z0-9]*", function(name)
      return followed(code, name, name, variables)
   end, MOST_TERMS)
end

--- Where the first MOST_TIMES occurrences of a text end, of those that are a word of their own; and whether that is all.
local function ends_of_commands(code, places, search, found)
   local ends, count = {}, 0
   local at, times, length = places[search], 1, #search.text
   while at do
      if times > MOST_TIMES or not spend(found, 1) then
         return ends, false
      end
      local last = at + length
      if IS_BLANK[byte(code, last) or NEWLINE] and begins_word(code, at) then
         count = count + 1
         ends[count] = last
      end
      at, times = find_text(code, search, at + 1), times + 1
   end
   return ends, true
end

-- Each of these appends to `found` (names, values, count, effort) and returns false where there is more than it looks at.

local function add(found, name, value)
   local count, effort = found.count + 1, found.effort + EFFORT_OF_VALUE
   found.count, found.effort = count, effort
   found.names[count], found.values[count] = name, value or false
   return effort <= MOST_EFFORT
end

--- The name of the word for a name that no table has, if it may be that of a count: states.actor-num-gpus; else nil.
local function name_of_count(name)
   local lowered = lower(name)
   local counts = sub(lowered, -6) == "degree"
   for number = 1, counts and 0 or #PARTS_OF_NAMES.counts do
      if find(lowered, PARTS_OF_NAMES.counts[number], 1, true) then
         counts = true
         break
      end
   end
   for number = 1, counts and #PARTS_OF_NAMES.others or 0 do
      if find(lowered, PARTS_OF_NAMES.others[number], 1, true) then
         return nil
      end
   end
   return counts and "states." .. gsub(match(name, "[^.]*$"), "_", "-") or nil
end

--- The long options. A word that begins with a dash is no value.
local function add_options(code, options, found)
   local at, looked_at, numbers = find(code, "--", 1, true), 0, 0
   while at do
      looked_at = looked_at + 1
      if found.effort + looked_at > MOST_EFFORT then
         return false
      end
      local name = match(code, "^[a-zA-Z][a-z_.A-Z0-9-]*", at + 2)
      if name == nil then
         at = match(code, "^%-+()", at)
      else
         at = at + 2 + #name
         local known = options[name] or (find(name, ".", 1, true) and options[match(name, "^.*%.(.*)$")])
         if known then
            local from = match(code, "^[ \t]*=?[ \t]*()", at)
            if byte(code, from) == BACKSLASH then
               from = match(code, "^\\\r?\n[ \t]*()", from) or from
            end
            local value = from > at and value_at(code, from) or nil
            if value and byte(value) == DASH and (value == "-" or find(value, "^%-[^0-9]")) then
               value = nil
            end
            if not add(found, known, value) then
               return false
            end
         elseif #name > 2 then
            local between, first, second = byte(code, at, at + 2)
            if
               first
               and ((first >= 48 and first <= 57) or (first == DOLLAR and second ~= 40 and second))
               and (between == 61 or between == 32)
            then
               numbers = numbers + 1
               if find(name, "[dDgGpPrRwW][aAeEoOpP][gGpPrRuU]") then
                  local counted = name_of_count(name)
                  if not spend(found, EFFORT_OF_NAME) or (counted and not add(found, counted, value_at(code, at + 1))) then
                     return false
                  end
               end
            end
         end
      end
      at = find(code, "--", at, true)
   end
   return spend(found, looked_at + floor(numbers / NUMBERS_OF_EFFORT))
end

--- The settings before one of their separators, also those behind a prefix with a dot; and where the script assigns
-- something to a name: `places` has the first place, `more` the others. The names are read backwards, and stand so in the
-- tables: a pattern goes back from its end one place at a time.
local function add_settings(code, backwards, separator, settings, found, places, more)
   local at, looked_at, numbers, length = find(code, separator, 1, true), 0, 0, #code + 2
   while at do
      looked_at = looked_at + 1
      if found.effort + looked_at > MOST_EFFORT then
         return false
      end
      local name, before = match(backwards, NAME_BACKWARDS, length - at), nil
      if name == nil then
         if at > 1 and MAY_STAND_BETWEEN[byte(code, at - 1)] then
            name, before = match(backwards, NAME_BEFORE, length - at)
         end
      elseif places then
         if places[name] == nil then
            places[name] = at + 1
         else
            local others = more[name] or {}
            more[name] = others
            others[#others + 1] = at + 1
         end
      end
      if name then
         local known = settings[name] or (find(name, ".", 1, true) and settings[match(name, "^[^.]*")])
         local from = at + 1
         if not known and #name > 2 then
            local first, second = byte(code, from, from + 1)
            if IS_BLANK[first] then
               from = match(code, "^[ \t]*()", from)
               first, second = byte(code, from, from + 1)
            end
            local begins = first and ((first >= 48 and first <= 57) or (first == DOLLAR and second ~= 40 and second))
            if begins and byte(name, -1) ~= DASH then
               numbers = numbers + 1
               known = find(name, "[gGpPrRuU][aAeEoOpP][dDgGpPrRwW]")
               if known then
                  if not spend(found, EFFORT_OF_NAME) then
                     return false
                  end
                  known = name_of_count(reverse(name))
               end
            end
         end
         if known and byte(name, -1) ~= DASH then
            before = before or length - at + #name
            if sub(backwards, before, before + 1) ~= "{$" then
               from = match(code, "^[ \t]*()", from)
               if not add(found, known, value_at(code, from)) then
                  return false
               end
            end
         end
      end
      at = find(code, separator, at + 1, true)
   end
   return spend(found, looked_at + floor(numbers / NUMBERS_OF_EFFORT))
end

--- The options with one dash.
local function add_dashed(code, dashed, found)
   for number = 1, #dashed do
      local text, name = dashed[number].text, dashed[number].name
      local at = find(code, text, 1, true)
      local times, length = 1, #text
      while at do
         if times > MOST_TIMES or not spend(found, 1) then
            return false
         end
         local last = at + length
         if find(code, "^[ =]", last) and begins_word(code, at) and not add(found, name, value_at(code, last + 1)) then
            return false
         end
         at, times = find(code, text, at + 1, true), times + 1
      end
   end
   return true
end

--- The rest of a command's line, continued lines with it.
local function rest_of_line(code, from)
   local newline = find(code, "\n", from, true) or #code + 1
   local line = sub(code, from, min(newline, from + LINE_BYTES) - 1)
   if newline < from + LINE_BYTES and find(line, "\\\r?$", -2) then
      line = gsub(sub(code, from, from + LINE_BYTES - 1), "\\\r?\n", " ")
      line = match(line, "^[^\n]*")
   end
   return line
end

--- The short options on the lines of a command.
local function add_short(code, ends, names, found)
   for number = 1, #ends do
      local line = rest_of_line(code, ends[number])
      if not spend(found, EFFORT_OF_SRUN + floor(#line / BYTES_OF_EFFORT)) then
         return false
      end
      for letter, value in gmatch(line, "[ \t]%-([A-Za-z])[ =]?([0-9$]%S*)") do
         if names[letter] and not add(found, names[letter], value) then
            return false
         end
      end
   end
   return true
end

--- The short options of srun, and the launchers, each with its short options and the word after it: a program, or --
-- for a long option.
local function add_commands(code, places, entries, found)
   local ends_of_srun, all = ends_of_commands(code, places, SRUN, found)
   if not all or not add_short(code, ends_of_srun, entries.short.srun, found) then
      return false
   end
   for number = 1, #entries.launchers do
      local launcher = entries.launchers[number]
      local search = launcher.search
      local ends = nil
      if search.text == SRUN.text then
         ends = ends_of_srun
      elseif find(code, search.part, 1, true) then
         ends, all = ends_of_commands(code, places, search, found)
         local names = entries.short[search.text]
         if names and not (all and add_short(code, ends, names, found)) then
            return false
         end
      end
      for each = 1, ends and #ends or 0 do
         local value = value_at(code, ends[each] + 1)
         if value and byte(value) == DASH then
            value = byte(value, 2) == DASH and "--" or nil
         end
         if not add(found, launcher.name, value ~= "" and value or nil) then
            return false
         end
      end
   end
   return true
end

--- The files that may be configurations or other scripts, by their names without folders, and whether the script writes
-- them. And whether it passes on its own arguments.
local function add_files(code, found)
   local passes = find(code, "$@", 1, true) or find(code, "{@", 1, true) or find(code, "$*", 1, true)
   if passes and not add(found, "arguments", nil) then
      return false
   end
   for number = 1, #FILE_SUFFIXES do
      local suffix = FILE_SUFFIXES[number]
      local at, times = find(code, suffix, 1, true), 1
      while at do
         if times > MOST_TIMES or not spend(found, EFFORT_OF_FILE) then
            if not add(found, "file", "_") then
               return false
            end
            break
         end
         if not find(code, "^[A-Za-z0-9_-]", at + #suffix) then
            local before = sub(code, max(1, at - TOKEN_BYTES), at - 1)
            local token = sub(before, match(before, "^.*[ \t\n\"'`=;|&<>()/,]()") or 1)
            local name = "file"
            if
               find(before, ">[ \t]*[\"']?[^ \t\n\"'`=;|&<>(),]*$")
               or find(before, "tee [ \t]*[\"']?[^ \t\n\"'`=;|&<>(),]*$")
            then
               name = "writes"
            end
            if not add(found, name, token .. suffix) then
               return false
            end
         end
         at, times = find(code, suffix, at + 1, true), times + 1
      end
   end
   return true
end

local add_setups, add_assigning
do -- a Lua function has room for 200 local names
   -- What sets variables from elsewhere: files that the shell reads, and what commands print.
   local EFFORT_OF_SETUP, SETUP_BYTES, BEFORE_BYTES = 2, 160, 32
   local ENDS_FILE = {[9] = true, [10] = true, [13] = true, [32] = true} -- tab, newline, return, blank
   local BEFORE_COMMAND = {} -- words, backwards, and separators
   for word in gmatch("then do else if elif while until builtin command time", "%a+") do
      BEFORE_COMMAND[reverse(word)] = true
   end
   for character in gmatch("\n;&|({!)`", ".") do
      BEFORE_COMMAND[byte(character)] = true
   end
   local SETUPS = {
      {search = SEARCH.text("source "), name = "sources", is_command = true},
      {search = SEARCH.text(". "), name = "sources", is_command = true},
      {search = SEARCH.text("eval "), name = "evals", is_command = true},
      {search = SEARCH.text("env $("), name = "evals"},
   }

   --- Whether a command may begin here: behind a line's end, a separator, a keyword, an assignment or an opening quote.
   local function begins_command(code, backwards, at)
      if at == 1 or byte(code, at - 1) == NEWLINE then
         return true
      end
      local before = #code + 2 - at
      before = sub(backwards, before, before + BEFORE_BYTES - 1)
      local from = match(before, "^[ \t]*()")
      local last = byte(before, from)
      local opens = (last == 34 or last == 39) and (from == 1 or IS_BLANK[byte(before, from + 1) or NEWLINE]) -- " '
      if last == nil or BEFORE_COMMAND[last] or opens then
         return true
      end
      local assigned_to = match(before, "^[^ \t\n]*=[a-zA-Z_0-9]+()", from)
      if assigned_to and IS_BLANK[byte(before, assigned_to) or NEWLINE] then
         return true
      end
      return BEFORE_COMMAND[match(before, "^[a-z]*", from)] or false
   end

   --- The file that source reads, without quotes and with $ for each $(...); nil for none, _ where it cannot be read.
   local function sourced_file(code, from)
      local usual, last = match(code, "^([a-zA-Z0-9_./$~-]+)()", from)
      if usual and ENDS_FILE[byte(code, last) or NEWLINE] and last - from < SETUP_BYTES then
         return usual
      end
      local part = sub(code, from, from + SETUP_BYTES - 1)
      local is_cut = #part == SETUP_BYTES
      if find(part, "(", 1, true) or find(part, "`", 1, true) then
         part = gsub(gsub(part, "`[^`\n]*`", "$"), "%$%([^()\n]*%)", "$")
         part = gsub(part, "%$%([^()\n]*%)", "$") -- $(dirname $(...))
      end
      usual, last = match(part, "^[ \t]*([^ \t\r\n;&|<>()]*)()")
      if usual == "" then
         return find(part, "^[<>()]", last) and "_" or nil
      end
      return is_cut and last > #part and "_" or gsub(usual, "[\"']", "")
   end

   --- The command whose output eval runs, or the first word of what it runs; nil for none.
   local function evaluated_command(code, from)
      local part = sub(code, from, from + SETUP_BYTES - 1)
      local begin = match(part, "^[ \t]*()")
      if find(part, "^[\r\n;&|]", begin) or begin > #part then
         return nil
      end
      return (gsub(match(part, "^[ \t\"'`$({]*([^ \t\r\n;&|<>()\"'`]*)"), "[{}]", ""))
   end

   --- The files that the script reads with source, and what it evaluates: these may set any variable.
   function add_setups(code, backwards, found)
      for number = 1, #SETUPS do
         local setup = SETUPS[number]
         local search = setup.search
         local at, times = find_text(code, search, 1), 1
         while at do
            if times > MOST_TIMES or not spend(found, EFFORT_OF_SETUP) then
               return false
            end
            local last = at + #search.text
            if begins_word(code, at) and (not setup.is_command or begins_command(code, backwards, at)) then
               local value = (setup.name == "sources" and sourced_file or evaluated_command)(code, last)
               if value and not add(found, setup.name, value) then
                  return false
               end
            end
            at, times = find_text(code, search, last), times + 1
         end
      end
      return true
   end

   -- Commands that set the variables they name.
   local EFFORT_OF_COMPUTED, MOST_PLAIN = 2, 2
   -- What may follow a word is optional in these patterns. If it were required, Lua would try each shorter word, too.
   local USUAL = "^[ \t]*[a-zA-Z0-9_=/.:,-]+()([ \t]?)" -- most plain words; other sets take longer
   local PLAIN, REST = "^[ \t]*[^ \t\n;&|<>()\"'`$]+()([ \t]?)", "^[^ \t\n;&|<>()\"'`$]*()([ \t]?)"
   local OPTION = "^[ \t]*%-[^ \t\n;&|<>()\"'`$]*()([ \t]?)"
   local ASSIGNMENT = "^[ \t]*[a-zA-Z0-9_]*[^ \t\n;&|<>()\"'`$=]*(=?)[^ \t\n;&|<>()\"'`]*()([ \t]?)"
   local ASSIGNING = {}
   for name in gmatch("export declare typeset local readonly read mapfile readarray let", "%a+") do
      ASSIGNING[#ASSIGNING + 1] = {search = SEARCH.text(name .. " "), name = name, plain = MOST_PLAIN}
   end
   ASSIGNING[#ASSIGNING + 1] = {search = SEARCH.text("printf -v "), name = "printf", plain = 0}
   ASSIGNING[#ASSIGNING + 1] = {search = SEARCH.text("env "), name = "env", plain = MOST_PLAIN, is_env = true}

   --- Whether a command sets a variable whose name the script computes: behind plain words, a name that begins with some
   -- letters and a $; or -n ref=$name.
   local function computes_name(code, from, plain)
      local refers = plain > 0 and byte(code, from) == DASH
      if refers and find(code, "^%-[a-zA-Z]*n[ \t]+[a-zA-Z0-9_]+=[\"']?[$`]", from) then
         return true
      end
      for _ = 1, plain do
         local last, blank = match(code, USUAL, from)
         if not last or blank == "" then
            last, blank = match(code, last and REST or PLAIN, last or from)
         end
         if not last then
            break
         elseif blank == "" then
            if not find(code, "^[$`]", last) then
               return false
            end
            break
         end
         from = last
      end
      local sign, after = match(code, "^[ \t]*[\"']?[a-zA-Z0-9_]*([$`]?)([\"']?)", from)
      return sign == "`" or sign == "$" and after == ""
   end

   --- Whether env sets such a variable: behind options and assignments, a name that begins with some letters and a $.
   local function env_computes_name(code, from, plain)
      for _ = 1, plain do
         local sign, last, blank = "=", match(code, OPTION, from)
         if not last or blank == "" then
            sign, last, blank = match(code, ASSIGNMENT, from)
         end
         if sign == "" or blank == "" then
            break
         end
         from = last
      end
      local sign, equals = match(code, "^[ \t]*[\"']?[a-zA-Z0-9_]*([$`]?)[^ \t\n;&|<>\"'=]*(=?)", from)
      return sign ~= "" and equals == "="
   end

   --- The commands that set a variable whose name the script computes: it may be any variable.
   function add_assigning(code, backwards, found)
      for number = 1, #ASSIGNING do
         local command = ASSIGNING[number]
         local search = command.search
         local at = find_text(code, search, 1)
         while at do
            local last = at + #search.text
            if not spend(found, 1) then
               return false
            elseif
               begins_word(code, at)
               and (command.is_env and env_computes_name or computes_name)(code, last, command.plain)
            then
               if not spend(found, EFFORT_OF_COMPUTED) then
                  return false
               elseif command.is_env or begins_command(code, backwards, at) then -- srun env
                  if not add(found, "assigns", command.name) then
                     return false
                  end
                  break
               end
            end
            at = find_text(code, search, last)
         end
      end
      return true
   end
end

--- The variables in the script's conditions: those that it compares, in order, and those that it tests for being set.
local function conditions_of(code, found)
   local compared, count, seen, unsure = {}, 0, {}, {}
   local function compare(name)
      if not seen[name] then
         seen[name] = true
         count = count + 1
         compared[count] = name
      end
   end
   for number = 1, #TESTS do
      local test = TESTS[number]
      local at, times = find(code, test.text, 1, true), 1
      while at do
         if times > MOST_TESTS or not spend(found, EFFORT_OF_TEST) then
            compare("_")
            break
         end
         local last = at + #test.text
         local counts
         if test.in_arithmetic then
            counts = byte(code, at - 1) ~= DOLLAR or at == 1
         else
            counts = test.in_brackets or begins_word(code, at)
         end
         if counts then
            local inside = match(sub(code, last, last + TEST_BYTES - 1), test.inside)
            if test.in_arithmetic or find(inside, "$", 1, true) then
               local is_unsure = test.in_brackets and find(inside, "^[ !]*%-[a-z] [^=<>!|&-]*$")
               local names = 0
               for name in gmatch(inside, test.names) do
                  names = names + 1
                  if names > MOST_NAMES then
                     break
                  end
                  if is_unsure then
                     unsure[name] = false
                  else
                     compare(name)
                  end
               end
               local command = find(inside, "$(", 1, true)
               if command then
                  compare(sub(inside, command))
               end
            end
         end
         at, times = find(code, test.text, at + 1, true), times + 1
      end
   end
   for number = 1, #PYTHON_SIZES do
      local text = PYTHON_SIZES[number]
      local at, times = find(code, text, 1, true), 1
      while at do
         if times > MOST_TESTS or not spend(found, 1) then
            compare("_")
            break
         end
         if find(code, "^[ \t]*[=!<>]", at + #text) then
            compare(text)
         end
         at, times = find(code, text, at + 1, true), times + 1
      end
   end
   for number = 1, #PYTHON_ENVIRONMENT do
      local text = PYTHON_ENVIRONMENT[number]
      local at, times = find(code, text, 1, true), 1
      while at do
         if times > MOST_TESTS or not spend(found, EFFORT_IN_PYTHON) then
            compare("_")
            break
         end
         local last = at + #text
         local part = sub(code, last, last + TEST_BYTES - 1)
         local name = match(part, IN_PYTHON)
         if name then
            compare(name)
         elseif text == "os.environ" then
            local method = match(part, PYTHON_ENVIRONMENT.calls)
            if method == "update" or method == "setdefault" or find(part, PYTHON_ENVIRONMENT.assigns) then
               compare(text)
            end
         end
         at, times = find(code, text, at + 1, true), times + 1
      end
   end
   return compared, unsure
end

--- The words of the code that the table names, joined by +; too-long if they are not all there.
-- Variables are followed only once it is known that there are not too many words.
local function words_of(code, places, entries, effort)
   local found = {names = {}, values = {}, count = 0, effort = effort}
   local places_of, more, backwards = {}, {}, reverse(code)
   local all = add_options(code, entries.options, found)
      and add_settings(code, backwards, "=", entries.settings, found, places_of, more)
      and add_settings(code, backwards, ":", entries.settings, found)
      and add_dashed(code, entries.dashed, found)
      and add_commands(code, places, entries, found)
      and add_files(code, found)
      and add_setups(code, backwards, found)
      and add_assigning(code, backwards, found)
   if not all then
      return "too-long"
   end
   local compared, unsure = conditions_of(code, found)
   local variables = new_variables(places_of, more, unsure, found)
   if not spend(found, EFFORT_OF_VARIABLE * #compared) then
      return "too-long"
   end
   local words, count, listed, bytes = {}, 0, {}, -1
   local names, values = found.names, found.values
   for number = 1, found.count do
      local word, value = names[number], values[number]
      if value then
         local whole = value
         if byte(value) == DOLLAR then
            if not spend(found, EFFORT_OF_VARIABLE) then
               return "too-long"
            end
            whole = resolved(code, value, variables)
         end
         if whole == value or not find(whole, "^%-[^0-9]") then
            if not find(whole, CLEAN) then
               if not spend(found, EFFORT_OF_UNCLEAN + floor(#whole / BYTES_OF_EFFORT)) then
                  return "too-long"
               end
               whole = gsub(whole, UNCLEAN, "_")
            end
            word = word .. "=" .. whole
         end
      end
      if not listed[word] then
         listed[word] = true
         count = count + 1
         words[count] = word
         bytes = bytes + #word + 1
         if bytes > WORDS_BYTES then
            return "too-long"
         end
      end
   end
   for number = 1, #compared do
      local name = compared[number]
      if name ~= "_" and find(name, "^[a-zA-Z_][a-z_A-Z0-9]*$") then
         compared[number] = followed(code, name, name, variables)
      end
   end
   if found.effort > MOST_EFFORT then
      return "too-long"
   end
   for number = 1, #variables.changed do
      compared[#compared + 1] = variables.changed[number]
   end
   for number = 1, #compared do
      local name = compared[number]
      local word = "compares=" .. gsub(name, UNCLEAN, "_")
      if not listed[word] then
         listed[word] = true
         count = count + 1
         words[count] = word
         bytes = bytes + #word + 1
         if bytes > WORDS_BYTES then
            return "too-long"
         end
      end
   end
   return concat(words, "+")
end

--- A polynomial hash modulo 2^31 - 1 of the first bytes without blanks and digits, which runs differ in.
--- Sixteen bytes a turn, without a loop inside: one byte a turn cost 40 µs a script.
local function fingerprint_of(code)
   local state = 7
   if #code > 2 * FINGERPRINT_BYTES then
      code = sub(code, 1, FINGERPRINT_BYTES) .. sub(code, -FINGERPRINT_BYTES)
   end
   local last = #code
   code = code .. "               " -- blanks change nothing
   for at = 1, last, 16 do
      local a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p = byte(code, at, at + 15)
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
      if i > 57 or (i > 32 and i < 48) then
         state = state * 31 + i
      end
      if j > 57 or (j > 32 and j < 48) then
         state = state * 31 + j
      end
      if k > 57 or (k > 32 and k < 48) then
         state = state * 31 + k
      end
      if l > 57 or (l > 32 and l < 48) then
         state = state * 31 + l
      end
      state = state % 2147483647
      if m > 57 or (m > 32 and m < 48) then
         state = state * 31 + m
      end
      if n > 57 or (n > 32 and n < 48) then
         state = state * 31 + n
      end
      if o > 57 or (o > 32 and o < 48) then
         state = state * 31 + o
      end
      if p > 57 or (p > 32 and p < 48) then
         state = state * 31 + p
      end
      state = state % 2147483647
   end
   return string.format("%.0f", state)
end

local class_of -- a block of its own: Lua has room for 200 local variables
do
   local ENDS_COMMAND = {"\n", ";", "&", "|"}

   --- Where a command ends that stands here: at the next of these characters. Searched for one by one, they are found
   -- much faster than as a set. `found` is where each was found before.
   local function end_of_command(code, at, found)
      local first = #code + 1
      for number = 1, #ENDS_COMMAND do
         if (found[number] or 0) < at then
            found[number] = find(code, ENDS_COMMAND[number], at, true) or #code + 1
         end
         first = min(first, found[number])
      end
      return first
   end

   --- The code without its evaluations: neither what launches one nor its model's name shows that a script trains.
   local function without_evaluations(code, texts)
      for number = 1, #texts do
         local text, kept, ends, from, times = texts[number], {}, {}, 1, 0
         local at = find(code, text, 1, true)
         while at and times < MOST_TIMES do
            times = times + 1
            local stop = at + #text
            if begins_word(code, at) and IS_BLANK[byte(code, stop) or NEWLINE] then
               local first = max(from, at - LINE_BYTES)
               kept[#kept + 1] = sub(code, from, first + (match(sub(code, first, at - 1), "^.*[\n;&|]()") or 1) - 2)
               from = end_of_command(code, at, ends)
               stop = from
            end
            at = find(code, text, stop, true)
         end
         if #kept > 0 then
            kept[#kept + 1] = sub(code, from)
            code = concat(kept)
         end
      end
      return code
   end

   --- The class of the first text of the intercept file that stands in the code; of an evaluation alone, serve.
   local function class_of_commands(code, places, intercept)
      local texts, rest, is_continued, frequent = {}, code, false, places.frequent
      for number = 1, #intercept.evaluations do
         local search = intercept.evaluations[number].search
         local part = frequent and frequent[search.first] and SEARCH.part_for(search, frequent) or search
         if find(code, part.part, 1, true) and places[search] then
            texts[#texts + 1] = search.text
         end
      end
      if #texts > 0 then
         if find(code, "\\\n", 1, true) or find(code, "\\\r\n", 1, true) then
            rest, is_continued = gsub(code, "\\\r?\n", " "), true
         end
         rest = without_evaluations(rest, texts)
      end
      for number = 1, #intercept.commands do
         local search = intercept.commands[number].search
         local part = frequent and frequent[search.first] and SEARCH.part_for(search, frequent) or search
         if (is_continued or find(code, part.part, 1, true) and places[search])
            and (#texts == 0 or find_text(rest, search, 1, frequent))
         then
            return intercept.commands[number].class
         end
      end
      return #texts > 0 and "serve" or nil
   end

   --- The class of the job; nil if it is not an LLM job.
   function class_of(code, places, words, intercept)
      local named
      for _, word in ipairs(words or {}) do
         local value = word:match("^class=(.*)$")
         if CLASSES[value or ""] then
            named = value
         end
      end
      return named or class_of_commands(code, places, intercept) or (words and "train")
   end
end

-- Which rule holds

local function partitions_of(job_desc, part_list)
   local names = {}
   for name in gmatch(text_of(job_desc, "partition") or "", "[^,%s]+") do
      names[#names + 1] = name
      if #names > MOST_ITEMS then
         names[1] = "" -- more than are looked at: only a rule for all partitions covers them
         break
      end
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
   local classes, partitions = {class}, partitions_of(job_desc, part_list)
   local account = text_of(job_desc, "account") or text_of(job_desc, "default_account") or ""
   local accounts = {account ~= "" and lower(account) or nil} -- Slurm's are lower-case; sbatch -A takes any
   for number = 1, #rules do
      local rule = rules[number]
      if
         all_in(classes, rule.classes)
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
   return find(text_of(job_desc, "admin_comment") or "", "rlalloc:v=", 1, true) ~= nil
end

--- The bytes of the fields that the plugin searches, beside the script and the user's comment.
local function bytes_of_fields(job_desc)
   local bytes = #(job_desc.environment["SLURM_SET_BY_RLALLOC"] or "")
   for number = 1, #TRES_FIELDS do
      bytes = bytes + #(text_of(job_desc, TRES_FIELDS[number]) or "")
   end
   for number = 1, #OTHER_FIELDS do
      bytes = bytes + #(text_of(job_desc, OTHER_FIELDS[number]) or "")
   end
   return bytes
end

--- Why an LLM job that a rule covers is skipped here, which costs it no time: a name; nil if it is not skipped.
-- The daemon skips, by the same names, what Lua cannot see: of a deadline there is only what the script says, since
-- job_desc shows no such field. `skipped_forms` are those that any update breaks in this site's Slurm, even one of the
-- begin time: Lua is told no version, rlallocd knows it.
local function name_to_skip(job_desc, script, frequent, skipped_forms, part_list)
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
   local exclusive = number_of(job_desc, "shared") == EXCLUSIVE
   for _, name in ipairs(partitions_of(job_desc, part_list)) do
      local partition = part_list and part_list[name]
      if skipped_forms["closed-partition"] and part_list and not partition and name ~= "" then
         return "closed-partition" -- part_list has only those that are open to the job's user
      end
      if exclusive and partition and (number_of(partition, "max_share") or 0) >= FORCE then
         return "exclusive-force" -- its record has OverSubscribe=YES, as those of all jobs there have
      end
   end
   if skipped_forms["ntasks-per-gpu"] and number_of(job_desc, "ntasks_per_tres") then
      return "ntasks-per-gpu"
   end
   if asks_for_deadline(script, frequent) then
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
   if #(words or "") > MOST_WORDS then
      return "too-long"
   end
   local ask = concat(words or {}, "+")
   if #ask > ASK_BYTES then
      return "too-long"
   end
   if not find(ask, "[^a-z0-9=,+A-Z._-]") and not find(concat(words or {}), "+", 1, true) then
      return ask -- quicker
   end
   return (gsub(gsub(concat(words, " "), "[^a-zA-Z0-9=,._ -]", "_"), " ", "+"))
end

--- Whether the words may name a model or parallel sizes: then the TaskProlog looks for rlallocd's plan. Those that are
-- too long may: rlallocd reads them itself.
local function shows_a_model(words)
   if words == "too-long" then
      return true
   end
   for number = 1, #SHOWS_A_MODEL do
      if find(words, SHOWS_A_MODEL[number], 1, true) then
         return true
      end
   end
   return false
end

--- What the script shows, for the tag, and whether the job may have a plan; empty if the intercept file names no words.
local function reading_of(code, places, whole, effort, intercept)
   if intercept.stamp == nil then
      return "", false
   end
   local words = "too-long"
   if whole and effort <= MOST_EFFORT then
      words = words_of(code, places, read_table(intercept.words, intercept.launchers), effort)
      if places.frequent and (places.frequent.searched or 0) > MOST_FREQUENT then
         words = "too-long" -- not all texts were searched for
      end
   end
   local reading = string.format(";table=%s;script=%s;words=%s", intercept.stamp, fingerprint_of(code), words)
   return reading, shows_a_model(words)
end

--- It also names what the user left to Slurm's defaults. The record of a queued job does not show that: Slurm fills in
-- DefMemPerCPU and one CPU per task at once, and replaces them by DefCpuPerGPU and DefMemPerGPU when it first tries to
-- start the job.
local function tag_text(job_desc, rule, class, begin, user_begin, ask, skip)
   local cpus = (number_of(job_desc, "cpus_per_task") or 0) > 0
   local mem = number_of(job_desc, "min_mem_per_node") or number_of(job_desc, "min_mem_per_cpu")
   mem = mem or text_of(job_desc, "mem_per_tres")
   local unset = cpus and (mem and "" or "mem") or (mem and "cpus" or "cpus+mem")
   return string.format(
      "rlalloc:v=1;mode=%s;rule=%s;class=%s;begin=%.0f;user_begin=%.0f;ask=%s%s;unset=%s",
      rule.mode, rule.name, class, begin, user_begin, ask, skip and ";skip=" .. skip or "", unset
   )
end

local function whole_number(text)
   local number = text:match("^%d+$") and tonumber(text)
   return number and number >= 1 and number <= LARGEST_NUMBER and number or nil
end

local function positive_number(text)
   local number = (text:match("^%d+$") or text:match("^%d+%.%d+$")) and tonumber(text)
   return number and number >= 0.001 and number <= LARGEST_NUMBER and number or nil
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
      for part in gmatch(value .. ",", "([^,]*),") do
         local number = tonumber(part)
         if not number or number < 1 or number > LARGEST_NUMBER then
            return false, true
         end
      end
      return not find(value, "[^%d,]"), true
   end
   local first, second = value:match("^([^-]*)%-?(.*)$")
   local low, high = read(first), read(second ~= "" and second or first)
   return low ~= nil and high ~= nil, low == nil or high == nil or low <= high
end

--- What is wrong with a word, for the user, as a text with a place for the word; nil if nothing is that can be seen.
local function complaint_about(word)
   local sign = find(word, "=", 1, true) or 1
   local key, value = sub(word, 1, sign - 1), sub(word, sign + 1)
   if not IS_KNOWN_WORD[key] or value == "" then
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
local function complaints_about(words, ask)
   local complaints = {}
   if ask == "too-long" then
      complaints[1] = string.format("more than %d #RLALLOC words, or %d characters", MOST_WORDS, ASK_BYTES)
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
      if number and (tonumber(number) or LEAST_MEM_GIB) * GIB_PER_UNIT[unit:upper()] < LEAST_MEM_GIB then
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

--- Whether the job asks for a number of tasks; sbatch itself names one for --hint with --nodes, not without (22.05).
-- Where it does not, Slurm adds task counts to its environment once an update has named them, and the TaskProlog
-- takes them away again.
local function asks_for_tasks(job_desc, leaked)
   if asks_for_any(job_desc, {"num_tasks", "ntasks_per_node", "ntasks_per_tres"}) then
      return true
   end
   return job_desc.environment["SLURM_NTASKS"] ~= nil and not leaked:find(" SLURM_NTASKS=", 1, true)
end

--- A test whether the job asks for GPUs in this field, as many as the variable of the environment says.
local function asks_for_gpus_by(field)
   return function(job_desc, value)
      local text = sub(text_of(job_desc, field) or "", 1, MOST_BYTES.tres)
      local items = gsub(gsub(text, "[=/]", ":"), ",", ",:")
      return find(":" .. items .. ",", ":" .. value .. ",", 1, true) ~= nil
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
   SLURM_MEM_PER_NODE = asks_by({"min_mem_per_node"}), -- for --mem=0, Slurm writes nothing over the other job's
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
   local leaked, items, seen = "", 0, {}
   for name, value in set:sub(1, MOST_BYTES.fields):gmatch(" (SLURM_[%u_]+)=([%w_:=,./-]+)") do
      items = items + 1
      if items > MOST_ITEMS then
         break
      end
      local asks = not seen[name] and ASKS_ITSELF[name] or nil
      seen[name] = true
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
local function intercept_job(job_desc, rule, class, ask, reading, planned, now, grace, skip, leaked)
   local user_begin = number_of(job_desc, "begin_time") or 0
   local admin_comment = text_of(job_desc, "admin_comment")
   local enforce = rule.mode == "enforce" and skip == nil
   local held = job_desc.priority == 0 -- the user's hold is the user's to release: tagged, not deferred
   local begin = 0
   if enforce and not held then
      begin = math.max(user_begin, now + grace)
   end
   local tag = tag_text(job_desc, rule, class, begin, user_begin, ask, skip) .. reading
   local comment = admin_comment and (admin_comment .. " " .. tag) or tag
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
   script = whole and script or sub(script, 1, SCRIPT_BYTES)
   local frequent = SEARCH.frequent(script, CODE_BYTES)
   local words, for_directives = directive_words(script, text_of(job_desc, "comment"), frequent)
   for _, word in ipairs(words or {}) do
      if word == LEAVE_ALONE then
         return -- its user's word; not even a tag
      end
   end
   local code, effort
   code, whole, effort = code_of(script, whole)
   local places = first_places(code)
   local class = class_of(code, places, words, intercept)
   if class == nil then
      return
   end
   local bytes = bytes_of_fields(job_desc)
   if bytes > MOST_BYTES.fields then
      slurm.log_info("rlalloc: job passed as submitted: its partitions, account, GRES and admin comment are too long")
      return
   end
   local rule = first_rule(intercept.rules, class, job_desc, part_list)
   if rule == nil or rule.mode == "off" then
      return
   end
   if has_tag(job_desc) or (number_of(job_desc, "het_job_offset") or 0) > 0 then
      return -- of a heterogeneous job, the first component stands for all
   end
   local skip = name_to_skip(job_desc, script, frequent, intercept.skipped_forms, part_list)
   local ask = ask_of(words)
   effort = effort + for_directives + floor(bytes / BYTES_OF_EFFORT)
   local reading, planned = reading_of(code, places, whole, effort, intercept)
   intercept_job(job_desc, rule, class, ask, reading, planned, now, intercept.grace, skip, leaked)
   if skip ~= nil then
      return
   end
   local complaints = complaints_about(words, ask)
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

--- Call it for each submission, after the site's own rules. Returns nothing, raises nothing, rejects nothing.
function M.job_submit(job_desc, part_list, _submit_uid)
   local ok, problem = pcall(handle, job_desc, part_list)
   if not ok then
      pcall(report, "job passed as submitted", problem)
   end
end

return M
