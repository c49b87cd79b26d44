"""The interface for Python programs: the verbs of the command line, with typed results and nothing on a terminal."""
