"""``rlalloc report``: what was asked, decided, applied and used in a span of time, by sacct's records."""
