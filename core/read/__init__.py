"""Capabilities that read a table: scans, changes, continuous reads, listings, exports.

Nothing here commits a snapshot. A capability that adds rows belongs to `load`.

    plan = plan_scan(table, ScanOptions(limit=10))
"""
