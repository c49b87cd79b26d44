"""Commands that set, move and drop branches and tags, and apply snapshots to branches."""
