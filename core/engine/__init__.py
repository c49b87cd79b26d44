"""Engines: run tasks in this process or on Spark.

Belongs here: the task protocol, engines, and the exchange of rows between tasks. Only this package imports
PySpark. Does not belong here: what a task does.

Terms: a *task* is a unit of work: a function and a *payload*, a dataclass that travels as JSON to the process that
runs the task and contains no secrets. A *report* is a dataclass that travels back. Spark may *attempt* a task
several times. An *exchange* sends rows from tasks to other tasks, by key or by range. The *driver* is the process
that runs the command; an *executor* runs tasks on a cluster.

    results = InlineEngine().run([Task(payload)], function, storage=storage)
"""
