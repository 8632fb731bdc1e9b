"""Environment shaping: what to train on, and for which reward."""
