"""Parts of `lake ingest` that its command calls: one load of any mode, and loads that go on."""
