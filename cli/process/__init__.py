"""The process of a command: its signals, and its standard error.

What is printed does not belong here (`lake.cli.render`, `lake.cli.messages`).
"""
