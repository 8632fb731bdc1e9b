"""Partial differential equations in one dimension: problems, schemes, references, control."""
