"""Fresh tasks of the three families for any program, each found to be solvable."""
