"""Migrations of the store, run by alembic: one file a revision in ``versions``, numbered in their order.

A revision is written by hand, with the functions of ``additions``, and never changes once it is released.
"""
