"""Files that are written but not committed: staged runs, claims, and cleanup after failures.

Does not belong here: the commit itself (`lake.core.transaction.commit`).

Terms: a *staged run* is a load whose files and temporary manifests are written and not yet committed. A *temporary
manifest* is what a Flink sink, or a staged load, writes before the commit. A *claim* marks that a process is
about to commit a staged run.
"""
