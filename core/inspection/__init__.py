"""`lake tables`, `show` and `inspect`: what a catalog and a table contain. Only metadata is read."""
