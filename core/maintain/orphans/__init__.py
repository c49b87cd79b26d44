"""`lake clean`: find the files below a table's folders that the table does not reference, and remove them."""
