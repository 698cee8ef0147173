"""``python -m rlalloc_demo``."""

from rlalloc_demo.app import main

if __name__ == "__main__":
    main()
