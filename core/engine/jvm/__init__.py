"""The JVM that runs Spark's driver: finding Java, starting it fast, and ending it.

Does not belong here: Spark's configuration (`lake.core.engine.spark`).
"""
