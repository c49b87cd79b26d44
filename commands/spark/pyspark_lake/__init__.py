"""Where Spark looks for data sources: it imports the installed packages with this prefix."""

from lake.commands.spark.source import LakeSource as DefaultSource

__all__ = ["DefaultSource"]
