"""Grid worlds in the Autumn language: runs of any program, and their pictures."""
