"""Branches and tags that `lake` gives a meaning: the refs of consumers.

What is here reads metadata only. Refs are committed by the packages of the commands. The history behind a ref is in
`lake.core.table.snapshots`.
"""
