"""Forget old snapshots and delete the files that only they reach."""
