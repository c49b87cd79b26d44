"""Rounds: one pass over the tables of a catalog, in which each gets the maintenance that it needs.

Belongs here: looking at all tables, deciding which action is due and why, the order, the budgets, and the report.
Does not belong here: what an action does; the caller passes a function that runs a verb.

Terms:
    action: a verb of maintenance on one table.
    decision: whether an action is due now, and the reason.

Example:
    outcome = maintain(session, run_verb, RoundOptions(patterns=("prod.*",), policy=policy, choices=choices))
"""
