"""What jobs need of host memory and CPUs: what like jobs really used (docs/explanation/past-usage.md)."""
