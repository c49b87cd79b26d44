"""Replay: what was written and never committed is found, judged and committed once."""
