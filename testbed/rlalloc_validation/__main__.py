"""``python -m rlalloc_validation``."""

import typer

from rlalloc_validation.validate_command import validate

if __name__ == "__main__":
    typer.run(validate)
