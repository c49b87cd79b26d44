"""Copy row groups from one Parquet file to another without decoding them."""
