"""Schemas of tables to come: of new tables, and of tables that get the new columns of a source.

Belongs here: what compares the columns of a source with a schema, and what makes columns of Iceberg from those of a
source. Does not belong here: changes of a definition that a user asks for (`lake.core.maintain.definition`).
"""
