"""Capabilities that add rows to tables: loads, upserts, change logs, replays, continuous loads.

A capability that rewrites or removes what a table has belongs to `maintain`, which imports nothing of this wing.

    plan = plan_replay(session, table, ReplayOptions(checkpoint=paths))
"""
