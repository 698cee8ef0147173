"""Answers for users, over a socket that everybody on the machine may connect to."""
