"""`lake health`: what the layout of each table costs its readers, and which commands would lower it.

A *need* is a command that would change the table and pays: a scan becomes noticeably faster, or the table's own
retention is exceeded. A *forecast* is what such a command would do, whether it pays or not. The *grade* of a table
follows from its needs. Nothing is written here, and no command is run: `compact`, `deletes`, `expire` and `manifests`
decide by themselves what they do.
"""
