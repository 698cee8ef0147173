"""Transactions: journal, update, read back, compare, begin or restore."""
