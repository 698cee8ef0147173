"""The error that ends the demo early."""


class DemoError(Exception):
    """Something that the demo needs failed; the message says what, and where to look."""
