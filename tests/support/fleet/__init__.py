"""A fleet of tables with known ills, made by Iceberg Java, PyIceberg and Flink: what `lake maintain` is judged by."""
