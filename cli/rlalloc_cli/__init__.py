"""The command ``rlalloc``: all that a person types. Heavy imports stay inside the command that needs them."""
