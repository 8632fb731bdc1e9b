"""Grid worlds written in the Autumn language, compiled to pure functions."""
