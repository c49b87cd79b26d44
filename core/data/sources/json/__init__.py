"""JSON sources: objects in lines or in an array, read by Arrow or exactly; the columns that they show.

What is the same for all formats does not belong here (`lake.core.data.sources.batches`).
"""
