"""What is known of a job: how long it runs, what it needs, how it scales."""
