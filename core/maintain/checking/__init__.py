"""Whether a table's metadata and files are whole and consistent: findings with codes.

Belongs here: the checks, and the findings they report. Does not belong here: changes of the table
(`lake.core.transaction.commit`).
"""
