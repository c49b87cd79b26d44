"""`lake stats`: the numbers of distinct values of columns, as statistics files that query planners read.

Belongs here: sketches of distinct values, and the plan and the commit of a statistics file. Does not belong here:
the Puffin format (`lake.core.deletes.puffin`) and bounds of columns in manifests (`lake.core.types.bounds`).
"""
