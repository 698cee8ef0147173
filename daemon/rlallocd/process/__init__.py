"""The process: signals, locks, files, state, reload."""
