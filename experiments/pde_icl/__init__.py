"""Language models that continue solutions of PDEs written as digits (arXiv 2509.06322)."""
