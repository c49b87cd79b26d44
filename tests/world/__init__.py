"""Worlds: a table simulated in one seeded process, with actors, faults and invariants checked after each step.

The invariants, and where each is checked:

- I1: the rows of every new snapshot are the model's, and at the end those of all retained ones, as stored on disk:
  `World._check_snapshot`, `World.check_all`.
- I2: every file of every retained snapshot exists with its length, statistics included: `World.check`. `lake check`
  reports no damage, also while others write: `World.check_by_lake`.
- I3: no deleted file is reachable, named by a job's state or outside the table, and no expired snapshot is too young
  or needed by a job: `World._check_deletable`, `flink.pending`, `World._check_expired`.
  A removal of orphan files deletes none that is younger than its limit; what it moves away can be moved back:
  `World._check_deletable`, `upkeep.settle`.
- I4: manifests and live files of a snapshot are listed once: `reference.Reference`.
- I5: sequence numbers increase by one, and deletes apply as the specification says: `World._committed`,
  `reference.Reference`.
- I6: a ref is moved only by its owners, and main is never removed: `World._check_refs`.
- I7: the totals of a summary equal the counted ones: `simulation._check_summary`.
- I8: a reader whose snapshot is retained finishes: `actors.read`.
- I9: increments and changes equal the model's difference, or a gap is reported: `actors.read_increment`,
  `actors.read_changes`.
- I10: a command that is repeated at once, or that only reads, changes and deletes nothing: `actors.append_run`,
  `flink.settle`, `staging.settle`, `World.come_to_rest`, `World.no_change`. `lake clean` finds orphan files once.
- I11: after the faults stop, one more run of each command reaches the same state: `World.stop_faults`,
  `World.come_to_rest`.
- I12: an acknowledged change is present, a refused one is not, and one with an unknown outcome is present completely
  or not at all, even if it is committed late: `World.step`, `World._answer`, `World._let_land`,
  `model.Operation.holds`.
- I13: what a follower handed over equals the table's rows, or its appends, at the position: `follower.Follower`. What
  a consumer has not read does not expire: `World._check_expired`.
- I14: the rows of each file that a watch takes are in the table's history once, and no file is moved or deleted
  before that: `watcher.Watcher`.
- I15: only commands for entries change the catalog's entries, and a command whose table was dropped, renamed or
  replaced changes no other table. A table that was dropped has all its files, and is registered with the rows of its
  last commit; of a purged one, nothing is left: `World._committed`, `World._entered`, `entries.bring_back`,
  `entries.purge`.
- I16: partitions expire as a whole, the oldest first, and only if all their rows are old: `upkeep.expire_partitions`.
"""
