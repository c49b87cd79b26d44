"""Rows to files and streams for people and other tools.

Belongs here: output formats, destinations, and the export by one process or by tasks. Does not belong here:
which rows are read (`lake.core.read.scan`, `lake.core.read.changelog`).
"""
