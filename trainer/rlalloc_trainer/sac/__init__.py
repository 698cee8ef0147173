"""Soft Actor-Critic, its critics and its replay buffers, in plain torch."""
