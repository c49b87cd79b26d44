"""What commands show in detail: the rows of listings, and the results of the demonstration.

A module belongs here if a command needs it and it declares no option.
"""
