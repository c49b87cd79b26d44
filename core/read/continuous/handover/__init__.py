"""Hand over what a follow discovered: its saved state, the splits that wait, epochs in a folder, rows in a stream.

What a follow discovers, and when it starts and stops, does not belong here (`lake.core.read.continuous`).
"""
