"""Tables, files and checkpoints that tests start from, made by hand or at random, and fixtures of Flink."""
