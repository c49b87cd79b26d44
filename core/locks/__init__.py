"""The table lock: at most one maintenance command runs per table.

Does not belong here: mutual exclusion that correctness depends on. Commits are safe without this lock.
"""
