"""The policy server: a SAC actor in torch that answers batches of questions over ZeroMQ."""
