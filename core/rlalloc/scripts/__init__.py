"""Batch scripts as text: their words, sizes and batches, and whether a job's GPU count may change."""
