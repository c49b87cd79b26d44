"""The page of `lake health`: one HTML file that a browser shows without a network and without scripts.

What belongs here: the geometry of its pictures, its texts, its template, its style and its script. What does not: a
measure; a page shows the rows and the views of `lake health` only. A *section* is the part of it about one table.

Names, values of partitions and messages are hostile text. The template escapes every value, and the page's Content
Security Policy allows no other style and script than its own, by their hashes.
"""
