"""Engines: run tasks in this process or on Spark.

Belongs here: the task protocol, engines, and the exchange of rows between tasks. Only this package imports
PySpark. Does not belong here: what a task does.

    results = InlineEngine().run([Task(payload)], function, storage=storage)
"""
