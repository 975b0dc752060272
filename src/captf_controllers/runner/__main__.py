"""Starts the runner: `python -m captf_controllers.runner`, and the entry of the frozen executable."""

from __future__ import annotations

import sys

from captf_controllers.runner.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
