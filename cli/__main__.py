"""``python -m lake.cli``."""

from lake.cli.main import main

raise SystemExit(main())
