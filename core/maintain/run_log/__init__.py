"""The run log: one line for each action of `lake maintain`, with what it was expected to save and what it saved.

Belongs here: the entries, the file that contains them, what later rounds learn from them, and the report about them.
Does not belong here:
deciding what is due (`core/maintain/policies`) and doing it (`core/maintain/rounds`).

Terms:
    entry: the line of one action on one table.
    measures: what a table's metadata shows before and after the action.

Example:
    log = RunLog(default_path())
    log.append(entry)
    entries = log.read().entries
"""
