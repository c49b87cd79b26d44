"""`lake compact`: rewrite data files without changing a row.

Terms: a *group* is the files that are rewritten together. A *dangling delete* is a delete file that applies to no
data file.

Dynamic buckets (Paimon's bucket -1) are not built: they only divide files by size, as a compaction does without one
writer for all buckets, and no reader of Iceberg prunes by them. Fixed buckets are a partition transform.
"""
