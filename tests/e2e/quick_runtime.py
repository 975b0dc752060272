"""A runtime that builds nothing: it writes the state that a module's apply would leave, and empties it again.

Runs alone, started by the runner in place of Terraform, where forty of those would be too many for a test.
"""

import base64
import gzip
import json
import os
import re
import sys
from pathlib import Path

HEALTH = {"state": "running", "healthy": True, "message": None, "reasons": []}
KEPT = Path("backend.json")


def outputs_of(values: dict) -> dict:
    found = values["captf_object"]
    if found["kind"] == "TerraformCluster":
        endpoint = {"host": f"{found['name']}.invalid", "port": 6443}
        return {
            "control_plane_endpoint": endpoint,
            "failure_domains": [],
            "exports": {},
            "health": HEALTH,
        }
    return {
        "provider_id": f"quick:///{found['namespace']}/{found['name']}",
        "addresses": [],
        "failure_domain": None,
        "interruptible": False,
        "health": HEALTH,
    }


def document(serial: int, *, destroy: bool) -> dict:
    values = json.loads(Path("terraform.tfvars.json").read_text())
    outputs = {} if destroy else outputs_of(values)
    resource = {"mode": "managed", "type": "quick", "name": "it", "provider": "quick", "instances": []}
    return {
        "version": 4,
        "terraform_version": "1.99.0",
        "serial": serial,
        "lineage": "quick",
        "outputs": {
            name: {"value": value, "type": "dynamic"} for name, value in outputs.items() if value is not None
        },
        "resources": [] if destroy else [resource],
    }


class Backend:
    """The state Secret, written as Terraform's kubernetes backend does."""

    def __init__(self) -> None:
        import http.client
        import ssl
        from urllib.parse import urlsplit

        settings = json.loads(KEPT.read_text())
        config = json.loads(Path(os.environ["KUBECONFIG"]).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.token = Path(user["tokenFile"]).read_text().strip()
        self.connection = http.client.HTTPSConnection(
            urlsplit(cluster["server"]).netloc,
            context=ssl.create_default_context(cadata=authority),
            timeout=60,
        )
        self.path = f"/api/v1/namespaces/{settings['namespace']}/secrets"
        self.name = f"tfstate-default-{settings['secret_suffix']}"
        self.labels = {
            **dict(re.findall(r'"([^"]*)"="([^"]*)"', settings["labels"])),
            "tfstate": "true",
            "tfstateSecretSuffix": settings["secret_suffix"],
            "tfstateWorkspace": "default",
        }

    def ask(self, method: str, path: str, body: dict | None = None) -> tuple[int, dict]:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        self.connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())

    def write(self, *, destroy: bool) -> None:
        status, secret = self.ask("GET", f"{self.path}/{self.name}")
        serial = 1
        if status == 404:
            secret = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": self.name, "labels": self.labels},
            }
        else:
            serial += json.loads(gzip.decompress(base64.b64decode(secret["data"]["tfstate"])))["serial"]
        content = gzip.compress(json.dumps(document(serial, destroy=destroy)).encode())
        secret["data"] = {"tfstate": base64.b64encode(content).decode()}
        method, path = ("POST", self.path) if status == 404 else ("PUT", f"{self.path}/{self.name}")
        status, answer = self.ask(method, path, secret)
        if status >= 300:
            sys.exit(f"Error: the state was not written: {answer.get('message')}")


def main(arguments: list[str]) -> int:
    command = arguments[0]
    if command == "version":
        print(json.dumps({"terraform_version": "1.99.0"}))
    elif command == "init":
        prefix = "-backend-config="
        given = [item.removeprefix(prefix) for item in arguments if item.startswith(prefix)]
        KEPT.write_text(json.dumps(dict(item.split("=", 1) for item in given)))
    elif command == "validate":
        print(json.dumps({"valid": True, "diagnostics": []}))
    elif command == "plan":
        return 2
    elif command == "show":
        change = {"address": "quick.it", "change": {"actions": ["update"]}}
        print(json.dumps({"format_version": "1.2", "resource_changes": [change]}))
    elif command in ("apply", "destroy"):
        Backend().write(destroy=command == "destroy")
    return 0


sys.exit(main(sys.argv[1:]))
