"""`python -m planner`."""

import sys

try:
    from planner.cli import main

    main()
except KeyboardInterrupt:
    sys.exit(130)
