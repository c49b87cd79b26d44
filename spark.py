"""Iceberg tables in Spark without a JAR: `import lake.spark`."""

import sys

from lake.commands import spark

# One module with two names: Spark pickles what it sends to its workers by the name of its module.
sys.modules[__name__] = spark
