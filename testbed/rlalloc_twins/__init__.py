"""Twin sites: one plan of submissions, and of what users and administrators do, run with and without rlalloc."""
