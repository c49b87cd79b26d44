"""Branches and tags: set, move and drop them, and apply the changes of snapshots to branches."""
