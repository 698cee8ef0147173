"""Outcomes: what became of jobs, ours or not, and what a decision was worth."""
