"""Combinatorial problems as sequential decision processes, with exact solvers and files."""
