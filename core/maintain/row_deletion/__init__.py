"""`lake delete`: the rows that a filter selects leave a table.

Does not belong here: how delete files are written and applied (`lake.core.data.deletes`), and the removal of
partitions by their age (`lake.core.maintain.partitions`).
"""
