"""``python -m kafka_keyshared.cli``."""

import sys

from kafka_keyshared.cli import main

if __name__ == "__main__":
    sys.exit(main())
