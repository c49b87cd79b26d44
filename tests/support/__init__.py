"""What the tests share: tables, judges, servers, faults and the command line. Tests are not stored here."""
