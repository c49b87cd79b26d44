"""Arrow IPC files and streams, as sources."""
