"""The last line of a command for people: one sentence in the past tense that says what happened to which table.

Belongs here: the sentence of each command, in the module with the command's name, and the command that continues it.
Scripts read the JSON document. Zeros are left out, and words follow the count. Does not belong here: tables and
messages (`lake.cli`).
"""
