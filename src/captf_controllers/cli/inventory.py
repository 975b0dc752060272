"""What a state describes, by address, read for the people who are about to let go of it."""

from __future__ import annotations

from dataclasses import dataclass

from captf_controllers.api import names
from captf_controllers.cli.examination import Examination
from captf_controllers.state.addresses import managed_addresses
from captf_controllers.state.backups import BackupSet
from captf_controllers.state.reader import fetch_state
from captf_controllers.state.reading import StateUnreadable
from captf_runtime.client import Client
from captf_runtime.client.errors import Forbidden, NotFound
from captf_runtime.objects import SECRET, format_time


@dataclass(frozen=True, slots=True)
class Inventory:
    """Addresses and where they were read; ``source`` alone says why there are none to show.

    ``known`` is False where there may be more than the addresses.
    """

    source: str
    addresses: tuple[str, ...] = ()
    known: bool = True


def of_state(client: Client, found: Examination) -> Inventory:
    """What the object's state describes; when that does not read, what the newest backup that reads does."""
    reading = found.reading
    if reading is None:
        return Inventory("the state may not be read with your permissions", known=False)
    if reading.state is not None:
        secrets = fetch_state(client, found.subject.namespace, found.suffix)
        addresses = managed_addresses(names.state_secret(found.suffix), secrets)
        source = f"the state of serial {reading.state.serial}"
        if found.unconfirmed_apply:
            job = found.unconfirmed_apply
            return Inventory(
                f"{source}, and whatever Job {job} created without a word", addresses, known=False
            )
        return Inventory(source, addresses)
    for backup in found.backups or ():
        addresses_of_it = of_backup(client, found.subject.namespace, backup) if backup.complete else None
        if addresses_of_it is not None:
            taken = format_time(backup.taken_at)
            return Inventory(
                f"the backup of serial {backup.serial}, taken {taken}, as the state does not read",
                addresses_of_it,
            )
    if reading.no_state and (found.facts is None or found.facts.hold is None):
        return Inventory("there is no state, and nothing was ever applied")
    return Inventory("no state and no backup reads: only the provider can tell", known=False)


def of_backup(client: Client, namespace: str, backup: BackupSet) -> tuple[str, ...] | None:
    """What a backup describes; None when it does not read."""
    try:
        secrets = [client.get(SECRET, chunk, namespace) for chunk in backup.chunks]
        return managed_addresses(backup.name, secrets)
    except (NotFound, Forbidden, StateUnreadable):
        return None
