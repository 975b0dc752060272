"""The pages about the library: what they show runs, is typed, and is all there is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme

import captf_runtime
from captf_runtime import Cache, Client
from captf_runtime.objects import CONFIG_MAP
from captf_runtime.testing.apiserver import ApiServer

REPOSITORY = Path(__file__).parents[2]
REFERENCE = REPOSITORY / "docs" / "runtime.md"
GUIDE = REPOSITORY / "docs" / "embedding.md"
MIRROR = REPOSITORY / "examples" / "embed" / "mirror.py"
MIRROR_TEST = REPOSITORY / "examples" / "embed" / "test_mirror.py"

FRAME = """
from pathlib import Path
from captf_runtime import Cache, Client

client: Client
cache: Cache
certificates: Path
"""
"""What the examples may use without saying where it comes from."""


@dataclass(frozen=True)
class Chapter:
    """A chapter of a page (between headings of the second level) and its code, in order."""

    title: str
    headings: tuple[str, ...]
    blocks: tuple[str, ...]

    @property
    def program(self) -> str:
        """All blocks that are programs."""
        return "\n".join(block for block in self.blocks if not is_excerpt(block))


def is_excerpt(block: str) -> bool:
    """Whether a block shows a part of a file of the example; its first line then names the file."""
    return block.startswith(("# mirror.py", "# test_mirror.py"))


def chapters(page: Path) -> list[Chapter]:
    found = []
    for part in re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        headings = re.findall(r"^### (\S+)$", text, flags=re.MULTILINE)
        blocks = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
        found.append(Chapter(title, tuple(headings), tuple(blocks)))
    return found


def programs() -> list[Any]:
    return [
        pytest.param(chapter, id=f"{page.stem}-{chapter.title.replace(' ', '-').lower()}")
        for page in (REFERENCE, GUIDE)
        for chapter in chapters(page)
        if chapter.program
    ]


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as made:
        with Client.from_config(kubeconfig=made.kubeconfig()) as client:
            client.create(CONFIG_MAP, {"metadata": {"name": "settings"}, "data": {"size": "3"}}, "default")
        yield made


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    certificate = trustme.CA().issue_cert("localhost")
    certificate.cert_chain_pems[0].write_to_path(folder / "tls.crt")
    certificate.private_key_pem.write_to_path(folder / "tls.key")
    return folder


@pytest.mark.parametrize("chapter", programs())
def test_the_examples_run(
    chapter: Chapter, server: ApiServer, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig()))
    content = server.snapshot()
    stop = threading.Event()
    with Client.from_config() as client:
        cache = Cache(client)
        cache.informer(CONFIG_MAP)
        cache.start(stop)
        cache.wait_for_sync(30)
        names = {"client": client, "cache": cache, "certificates": certificates, "__name__": "example"}
        try:
            exec(compile(chapter.program, f"{chapter.title}.py", "exec"), names)
        finally:
            stop.set()
            cache.shutdown()
            server.restore(content)


def test_the_reference_has_every_public_name_and_no_other() -> None:
    headings = [heading for chapter in chapters(REFERENCE) for heading in chapter.headings]
    assert sorted(headings) == sorted(captf_runtime.__all__)
    for chapter in chapters(REFERENCE):
        for heading in chapter.headings:
            assert re.search(rf"\b{heading}\b", chapter.program), f"the example of {heading} does not show it"


def test_the_guide_shows_the_example_as_it_is() -> None:
    excerpts = [block for chapter in chapters(GUIDE) for block in chapter.blocks if is_excerpt(block)]
    files = {"mirror.py": MIRROR.read_text(), "test_mirror.py": MIRROR_TEST.read_text()}
    assert {block.partition("\n")[0].removeprefix("# ") for block in excerpts} == set(files)
    for block in excerpts:
        name, _, shown = block.partition("\n")
        source = textwrap.dedent(files[name.removeprefix("# ")])
        candidates = (shown, textwrap.indent(shown, "    "))
        assert any(candidate.strip("\n") in source for candidate in candidates), f"not in {name}:\n{shown}"


@pytest.mark.slow
@pytest.mark.requirement("G6")
def test_the_examples_are_typed(tmp_path: Path) -> None:
    """A strict type check of all examples, and with it of everything public that they use."""
    files = [MIRROR, MIRROR_TEST]
    for number, chapter in enumerate(parameter.values[0] for parameter in programs()):
        file = tmp_path / f"chapter_{number}.py"
        file.write_text(f"# {chapter.title}\n{FRAME}\n{chapter.program}")
        files.append(file)
    environment = {**os.environ, "MYPYPATH": os.pathsep.join([str(REPOSITORY / "src"), str(MIRROR.parent)])}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--python-version", "3.11"),
            *("--disable-error-code", "import-untyped", "--cache-dir", str(tmp_path / "cache")),
            *map(str, files),
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
