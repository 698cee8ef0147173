"""``python -m rlalloc_demo``."""

from rlalloc_demo.demo_run import main

if __name__ == "__main__":
    main()
