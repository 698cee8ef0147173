"""What ``rlalloc doctor`` and the metrics of rlallocd check of an installation and its site."""
