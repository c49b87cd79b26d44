"""Faults that tests inject: on the wire, in tasks, in storage, and kills at a given step."""
