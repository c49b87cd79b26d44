"""Commits: operations become snapshots, conflicts are validated, and the outcome is determined.

Belongs here: everything between an operation's files and the swap of metadata. Does not belong here: which
files a command chooses.

Terms: an *operation* is a change of a table's files, as a value (`operations.py`); its *operation id*, a UUID, is
in the names of the files and in the snapshot's summary. A *step* is one snapshot of a commit: an operation and the
entries for its summary. A *commit* is one request to the catalog, of one or more steps; an *attempt* is one try of
it. A *protected file* is one that a snapshot references or may reference: it is never deleted, whatever fails
later.
"""
