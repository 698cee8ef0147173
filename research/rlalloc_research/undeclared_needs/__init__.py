"""Memory and CPUs trimmed to what like jobs used, on logs of real sites with needs that nobody declared."""
