"""Reading Flink's checkpoints and savepoints: what a sink's committer took and had not yet committed."""
