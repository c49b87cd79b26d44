"""Read a table in batches that the engine of a stream remembers: it says where a batch starts and ends.

What a follower finds (`lake.core.read.continuous`) belongs there; here it is cut into batches, and found again.
"""
