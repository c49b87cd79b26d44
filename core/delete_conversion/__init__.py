"""Conversion of equality deletes to position deletes or deletion vectors."""
