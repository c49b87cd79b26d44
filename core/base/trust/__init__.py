"""Which settings of files that were found in the working folder count.

Other users may be able to write to the working folder, so a file there chooses no code, and no address that would
receive a secret of a more trusted source: the command line, the environment, or the home folder. What a table or a
server may choose does not belong here (`lake.core.table.catalogs.trust`).
"""
