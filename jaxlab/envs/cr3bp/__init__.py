"""The circular restricted three-body problem."""
