"""Other implementations in processes of their own (Iceberg Java on Spark, Flink) that judge rows."""
