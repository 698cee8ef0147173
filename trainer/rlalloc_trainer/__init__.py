"""How policies are made and judged: simulator, workloads, SAC, evaluation and the gate."""
