"""Traces and metrics of commands for OpenTelemetry, if its standard environment variables ask for them.

Belongs here: what is recorded of a command, and how it is sent. Without the variables, none of OpenTelemetry is
imported.

Terms:
    span: a part of a command with its duration: the command, its work on one table, a phase.
"""
