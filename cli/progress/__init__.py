"""What standard error shows while a command works: a bar, lines, or JSON documents; results are in `lake.cli`."""
