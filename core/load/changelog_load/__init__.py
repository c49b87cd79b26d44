"""Loads of a change log: apply its rows by key, in their order.

Does not belong here: reading a table's changes (`lake.core.read.changelog`).
"""
