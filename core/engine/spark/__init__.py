"""The Spark engine: sessions, jobs, and Python workers.

Starting a JVM (`lake.core.engine.jvm`) and the work of tasks do not belong here.
"""
