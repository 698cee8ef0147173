"""The policy store: versions, what a network reads, promotions."""
