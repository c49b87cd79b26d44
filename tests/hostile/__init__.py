"""Broken and hostile input by the thousand, through lake's own commands, in processes with limits."""
