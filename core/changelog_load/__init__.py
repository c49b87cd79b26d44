"""`lake ingest --changes-column`: apply a change log by key, in its order.

Does not belong here: reading a table's changes (`lake.core.changelog`).
"""
