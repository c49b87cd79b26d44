"""Commits: operations become snapshots, conflicts are validated, and the outcome is determined.

Belongs here: everything between an operation's files and the swap of metadata. Does not belong here: which
files a command chooses.
"""
