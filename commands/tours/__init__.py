"""The two tours of `lake demo`: real flights in one table, and a warehouse of tables that need maintenance.

A module belongs here if only the demonstration needs it. The tables of the warehouse are written by the core's own
writers, as other programs would have left them: `tables.make_tables` makes any of them in any catalog, for tests and
benchmarks too.
"""
