"""The terminal: the only place with Rich, standard output and exit codes."""
