"""Worlds: a table in one seeded process, with everything that happens to it and what must hold after each step.

What must hold, and where that is checked:

- I1: the rows of every new snapshot are the model's, and those of all retained ones, from the disk, at the end:
  `World._check_snapshot`, `World.check_all`.
- I2: every file of every retained snapshot is there with its length, statistics too: `World.check`.
- I3: no deleted file is reachable, named by a job's state or outside, and no snapshot goes that is too young or that
  a job needs: `World._check_deletable`, `flink.pending`, `World._check_expired`.
- I4: manifests and live files of a snapshot come once: `reference.Reference`.
- I5: sequence numbers grow by one, and deletes reach what the format says: `World._committed`,
  `reference.Reference`.
- I6: a ref is moved by its owners alone, and main stays: `World._check_refs`.
- I7: totals of a summary are those that are counted: `simulation._check_summary`.
- I8: a reader whose snapshot is retained finishes: `actors.read`.
- I9: increments and changes are the model's difference, or a loud gap: `actors.read_increment`,
  `actors.read_changes`.
- I10: what is asked for again at once, and what only looks, changes and deletes nothing: `actors.append_run`,
  `flink.settle`, `staging.settle`, `World.come_to_rest`, `World.no_change`.
- I11: when faults stop, one more run of each command comes to the same end: `World.stop_faults`,
  `World.come_to_rest`.
- I12: what is acknowledged is there, what is refused is not, and what is unknown is there wholly or not at all, even
  if it lands late: `World.step`, `World._answer`, `World._let_land`, `model.Operation.holds`.
"""
