-- A whole job_submit.lua for sites that have none; others call rlalloc.lua from their own (see rlalloc.lua).

-- rlalloc.lua stands beside this file or in /usr/lib/rlalloc. Without it, jobs pass untouched.
local here = string.match(debug.getinfo(1, "S").source, "^@(.*/)") or ""
local rlalloc = nil
for _, path in ipairs({ here .. "rlalloc.lua", "/usr/lib/rlalloc/rlalloc.lua" }) do
   local fine, module = pcall(dofile, path)
   if fine and type(module) == "table" then
      rlalloc = module
      break
   end
end
if rlalloc == nil then
   slurm.log_error("rlalloc: rlalloc.lua was not found or is broken: all jobs pass untouched")
end

function slurm_job_submit(job_desc, part_list, submit_uid)
   if rlalloc ~= nil then
      rlalloc.job_submit(job_desc, part_list, submit_uid)
   end
   return slurm.SUCCESS
end

function slurm_job_modify(_job_desc, _job_rec, _part_list, _modify_uid)
   return slurm.SUCCESS
end

return slurm.SUCCESS
