"""One module per verb: parse the options, call the core, return an outcome."""
