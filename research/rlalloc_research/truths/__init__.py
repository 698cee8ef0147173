"""Where the constants of ``rlalloc_simulator.truths`` come from: tables and logs that stay where they are."""
