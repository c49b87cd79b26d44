"""Models in plain Python of what the specification says; tests compare lake with them."""
