"""`lake stats`: statistics files for query planners: distinct values of columns, contents of partitions.

Belongs here: sketches of distinct values, counts of partitions, and the plan and the commit of a statistics file.
Does not belong here: the Puffin format (`lake.core.data.deletes.puffin`) and bounds of columns in manifests
(`lake.core.spec.types.bounds`).
"""
