"""The Spark engine: sessions, jobs, and Python workers.

Does not belong here: starting a JVM (`lake.core.engine.jvm`), or what a task does.
"""
