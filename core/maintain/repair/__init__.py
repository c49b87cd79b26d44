"""Repairs of `lake check`: mends damage that can be mended without a guess, in one commit.

Belongs here: which damage can be mended, the plan of each repair, and its commit. Does not belong here: reports of
damage (`lake.core.maintain.checking`) and the manifests of a commit (`lake.core.transaction.commit`).
"""
