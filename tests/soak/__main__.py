"""`python -m soak`: see `soak.nights`."""

import sys

from soak.nights import main

if __name__ == "__main__":
    sys.exit(main())
