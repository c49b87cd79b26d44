"""The JVM of Spark's driver: find Java, start it fast, and end it.

Spark's configuration does not belong here (`lake.core.engine.spark`).
"""
