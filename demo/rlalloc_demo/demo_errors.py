"""What ends the demo before its time."""


class DemoError(Exception):
    """Something that the demo needs did not come about; the text says what, and where to look."""
