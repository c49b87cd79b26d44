"""Writes of a DataFrame: Spark runs the tasks, which write files as a load's do, and the driver commits the files."""
