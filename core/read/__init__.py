"""Capabilities that read a table: scans, changes, continuous reads, listings, exports.

Nothing here commits a snapshot. A capability that adds rows belongs to `load`.

    plan = plan_scan(session, table, ScanOptions(from_snapshot=first))
"""
