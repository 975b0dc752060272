"""A cloud whose servers can be counted, that refuses or delays what it is told to, and remembers its calls."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Literal

Call = Literal["create", "destroy"]

# Called by provisioners as: provider create|destroy NAME INDEX. As in a real cloud, an order may be carried out
# after whoever gave it was killed, and removing what is gone already is no failure; the calls are all kept.
_PROVIDER = """#!/bin/sh
cloud=$(dirname "$0")
echo "$1 $2" >>"$cloud/calls"
while [ -e "$cloud/hold-$1" ]; do sleep 0.05; done
if [ -e "$cloud/refuse-$1-$3" ]; then
  cat "$cloud/refuse-$1-$3" >&2
  exit 1
fi
case $1 in
create) : >"$cloud/servers/$2" ;;
destroy) rm -f "$cloud/servers/$2" ;;
esac
"""


class Cloud:
    """A folder with servers (files of `servers/`) and a program that makes and removes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "servers").mkdir(parents=True)
        provider = folder / "provider"
        provider.write_text(_PROVIDER)
        provider.chmod(provider.stat().st_mode | stat.S_IXUSR)

    def servers(self, owner: str = "") -> list[str]:
        """The servers that exist, of one object or of all: `<namespace>.<object>.<index>`, sorted."""
        names = sorted(path.name for path in (self.folder / "servers").iterdir())
        return [name for name in names if not owner or name.split(".")[1] == owner]

    def calls(self, call: Call) -> list[str]:
        """The servers of every call so far, in order."""
        journal = self.folder / "calls"
        lines = journal.read_text().splitlines() if journal.exists() else []
        return [line.split()[1] for line in lines if line.split()[0] == call]

    def refuse(self, call: Call, index: int, message: str = "the quota of this cloud is used up") -> None:
        """From now on the call fails for the server of that index of every object, saying so."""
        (self.folder / f"refuse-{call}-{index}").write_text(message + "\n")

    def allow(self, call: Call, index: int) -> None:
        """End a refusal."""
        (self.folder / f"refuse-{call}-{index}").unlink()

    def hold(self, call: Call) -> None:
        """From now on every such call waits."""
        (self.folder / f"hold-{call}").touch()

    def release(self, call: Call) -> None:
        """Let the waiting calls, and later ones, go on."""
        (self.folder / f"hold-{call}").unlink()
