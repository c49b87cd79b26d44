"""The two tours of `lake demo`: real flights in one table, and made-up tables that nobody has maintained.

A module belongs here if only the demonstration needs it. What is made of tables with the core's own writers, as other
programs would have left them, is in `tables` and `table_maker`; benchmarks use them too.
"""
