"""What was built: the commit, which the image knows, and the contract with Cluster API."""

from __future__ import annotations

import os
from typing import Final

from captf_controllers.api.labels import CONTRACT_VERSION

#: Version of Cluster API's contract, the last part of the label that the CRDs carry.
CONTRACT: Final = CONTRACT_VERSION.rpartition("/")[2]
#: Set in the image.
COMMIT_VARIABLE: Final = "CAPTF_COMMIT"


def commit() -> str:
    """The commit that this build is of; `unknown` outside of an image."""
    return os.environ.get(COMMIT_VARIABLE, "") or "unknown"
