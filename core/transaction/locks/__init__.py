"""The table lock: at most one maintenance command runs per table; and whether ages can be trusted on this machine.

Does not belong here: mutual exclusion that correctness depends on. Commits are safe without this lock.
"""
