"""Read and write the rows of data files in bounded batches, independent of the file format.

Deletes (`lake.core.data.deletes`) and engines (`lake.core.engine`) do not belong here.
"""
