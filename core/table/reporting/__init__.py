"""Reports about commits and scans for a catalog's server: their contents, and how they are sent beside the work.

Does not belong here: which server takes reports, and how requests to it are made (`lake.core.table.catalogs`).

Terms: a *report* is one request body of the endpoint ``metrics`` of Iceberg's REST specification.
"""
