"""Workloads whose truth no policy assumes: measured scaling, limits and needs as people have them, users who repeat.

``pollux_tables``     step times that Pollux measured, as speed curves (needs its files)
``pollux_workloads``  its workloads of 160 jobs, and draws like them (needs its files)
``scaling_mixture``   curves drawn from what was fitted to five sources of measurements
``job_families``      users and families of jobs whose run times are alike, as in the logs of two real sites
``people``            requests, limits, ranges and needs as people give them
``sites``             a workload of any source as it would be on such a site, with a past
"""
