"""Upserts: load rows that replace the table's rows with the same keys.

Not built: an index of keys that is kept between loads (Paimon's index of cross-partition upserts), because each
writer would have to change it in the same commit as the rows. Each load reads the key columns of the files that may
contain a key instead. Measured with 10,000 changes and 10 million rows in ten files (`tests/bench/lookup.py`): 0.5
of 2.3 seconds of the processor and 37 MiB for keys in any order, less than 0.1 seconds and 2 MiB for recent keys of
files that have ranges of them. Aggregation as a merge engine is not built either: a load that is repeated after an
unknown outcome would add its values twice.
"""
