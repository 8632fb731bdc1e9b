"""One module per claim about speed: the peer and jaxlab on the same work in one run."""
