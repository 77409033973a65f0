"""One explicit token for a share of one thread pool, for a whole CPU numeric stack."""
