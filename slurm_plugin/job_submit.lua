--- job_submit.lua for sites that have none: nothing but rlalloc. Belongs beside slurm.conf.
--
-- A site with a job_submit.lua keeps it and calls rlalloc.lua from there: see README.md. slurmctld would not start
-- with a broken script, so a missing or broken rlalloc.lua is logged and jobs pass as they are.

local INSTALLED = "/usr/lib/rlalloc/rlalloc.lua"

local function readable(path)
   local file = io.open(path, "r")
   if file ~= nil then
      file:close()
   end
   return file ~= nil
end

--- rlalloc.lua from beside this file, else as installed; nil, with a line in slurmctld's log, if it cannot be used.
local function load_rlalloc()
   local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
   local path = here .. "rlalloc.lua"
   if not readable(path) then
      path = INSTALLED
   end
   local ok, module = pcall(dofile, path)
   if ok and type(module) == "table" and type(module.job_submit) == "function" then
      return module
   end
   slurm.log_error("rlalloc: %s cannot be used, jobs pass as submitted: %s", path, tostring(module))
   return nil
end

local loaded, rlalloc = pcall(load_rlalloc)
if not loaded then
   rlalloc = nil
end

function slurm_job_submit(job_desc, part_list, submit_uid)
   if rlalloc ~= nil then
      rlalloc.job_submit(job_desc, part_list, submit_uid)
   end
   return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, _part_list, modify_uid)
   local refusal = rlalloc ~= nil and rlalloc.job_modify(job_desc, job_rec, modify_uid)
   return refusal or slurm.SUCCESS
end

return slurm.SUCCESS
