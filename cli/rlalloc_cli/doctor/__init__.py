"""``rlalloc doctor``: each check of a live site is a line with a level and, where it is not OK, the remedy."""
