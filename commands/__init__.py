"""One module per verb: options, a call to the core, an outcome."""
