"""A number of things in words."""


def counted(number: int, thing: str) -> str:
    """``1 GPU``, ``2 GPUs``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
