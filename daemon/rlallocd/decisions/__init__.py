"""Decisions: questions to the agent, answers, and pending jobs that are decided again."""
