"""`lake tables`, `show` and `inspect`: what a catalog and a table contain. Data files are not read."""
