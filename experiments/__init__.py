"""The experiments: one file or package per paper. `python -m experiments` lists them."""
