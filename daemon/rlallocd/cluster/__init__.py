"""The cluster of one snapshot: the nodes that a job may use, what runs there, and who else waits for them."""
