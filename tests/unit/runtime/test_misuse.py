"""What is used wrongly says so, and how to use it."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.fakes import FakeCache, eventually, stored

from captf_runtime import (
    Cache,
    Client,
    Context,
    Controller,
    Kind,
    Manager,
    Object,
    Request,
    Result,
    Watch,
    log,
)
from captf_runtime.cache import Added, NotCached, NotSynced
from captf_runtime.client import ClientConfig, ConfigError, NotFound, load_config
from captf_runtime.controller import generation_changed
from captf_runtime.objects import CONFIG_MAP, NAMESPACE, SECRET, ObjectKey


def idle(ctx: Context, request: Request) -> None:
    """A reconciler that has nothing to do."""


@pytest.fixture
def client() -> Iterator[Client]:
    """A client of a server that is not there: nothing here gets as far as a request."""
    with Client(ClientConfig(server="http://127.0.0.1:9")) as made:
        yield made


@pytest.fixture
def cache(client: Client) -> Cache:
    """A cache of ConfigMaps that holds one, without a server."""
    made = Cache(client)
    obj: Object = {
        "metadata": {
            "name": "one",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "1",
            "labels": {"a": "1"},
        }
    }
    made.informer(CONFIG_MAP).replace([stored(CONFIG_MAP, obj)], "1")
    return made


class TestCache:
    @pytest.mark.requirement("RD2")
    def test_a_kind_that_nobody_follows(self, cache: Cache) -> None:
        for read in (lambda: cache.get(SECRET, "one", "ns"), lambda: cache.list(SECRET)):
            with pytest.raises(NotCached, match="secrets is not cached: request an informer for it"):
                read()

    @pytest.mark.requirement("RD2")
    def test_a_cache_that_was_not_started(self, client: Client) -> None:
        cache = Cache(client)
        cache.informer(CONFIG_MAP)
        with pytest.raises(
            NotSynced, match="configmaps is not synced yet: the cache was not started: start it"
        ):
            cache.get(CONFIG_MAP, "one", "ns")

    @pytest.mark.requirement("RD2")
    def test_a_cache_that_has_not_synced(self, client: Client) -> None:
        cache = Cache(client)
        cache.informer(CONFIG_MAP)
        stop = threading.Event()
        cache.start(stop)
        try:
            with pytest.raises(NotSynced, match="configmaps is not synced yet: "):
                cache.list(CONFIG_MAP)
            informer = cache.informer(CONFIG_MAP)
            eventually(lambda: informer.last_error is not None)
            with pytest.raises(NotSynced, match=r"not synced yet: .*Connection refused"):
                cache.list(CONFIG_MAP)
        finally:
            stop.set()
            cache.shutdown()

    def test_a_name_in_place_of_a_kind(self, cache: Cache, client: Client) -> None:
        wrong: Any = "ConfigMap"
        calls: list[Callable[[], object]] = [
            lambda: cache.get(wrong, "one", "ns"),
            lambda: cache.informer(wrong),
            lambda: client.get(wrong, "one", "ns"),
            lambda: client.list(wrong),
            lambda: Controller("c", for_=wrong, reconciler=idle, cache=cache),
            lambda: Controller("c", for_=CONFIG_MAP, owns=[wrong], reconciler=idle, cache=cache),
        ]
        for call in calls:
            with pytest.raises(
                TypeError, match=r"kind: must be a Kind, got 'ConfigMap': take a constant such as"
            ):
                call()

    def test_a_namespace_that_was_forgotten(self, cache: Cache, client: Client) -> None:
        with pytest.raises(
            NotFound, match=r'"one" not found: the kind is namespaced, and no namespace was given'
        ):
            cache.get(CONFIG_MAP, "one")
        with pytest.raises(ValueError, match="configmaps 'one': the namespace is empty"):
            client.get(CONFIG_MAP, "one")

    @pytest.mark.requirement("IN3")
    def test_what_is_read_can_be_changed_and_the_cache_cannot(self, cache: Cache) -> None:
        cache.get(CONFIG_MAP, "one", "ns")["metadata"]["labels"]["a"] = "2"
        cache.list(CONFIG_MAP)[0]["metadata"].clear()
        assert cache.get(CONFIG_MAP, "one", "ns")["metadata"]["labels"] == {"a": "1"}

        header: Any = cache.header(CONFIG_MAP, "one", "ns")
        with pytest.raises(AttributeError, match="immutable type: 'Header'"):
            header.name = "two"
        with pytest.raises(TypeError, match="does not support item assignment"):
            header.labels["a"] = "2"
        seen: Any = cache.informer(CONFIG_MAP).store.get("ns", "one")
        with pytest.raises(AttributeError, match="immutable type: 'StoredObject'"):
            seen.data = b"{}"

    def test_a_write_to_the_cache(self, cache: Any) -> None:
        with pytest.raises(AttributeError, match="a cache only reads: patch with the client"):
            cache.patch(CONFIG_MAP, "one", {}, "ns")
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            cache.nothing()

    def test_a_second_informer_of_other_settings(self, cache: Cache) -> None:
        with pytest.raises(
            ValueError, match=r"follows configmaps already .* use the same settings everywhere"
        ):
            cache.informer(CONFIG_MAP, namespace="ns")

    @pytest.mark.requirement("IN1")
    def test_an_informer_of_a_namespace_that_cannot_be(self, client: Client) -> None:
        with pytest.raises(ValueError, match="namespace: namespaces are in no namespace, got 'ns'"):
            Cache(client).informer(NAMESPACE, namespace="ns")
        with pytest.raises(ValueError, match="'a/b' is not a valid name"):
            Cache(client).informer(CONFIG_MAP, namespace="a/b")

    @pytest.mark.requirement("RD2", "RD4")
    def test_waiting_for_what_the_cache_cannot_see(self, client: Client) -> None:
        cache = Cache(client)
        informer = cache.informer(CONFIG_MAP, namespace="ns")
        with pytest.raises(NotSynced, match="the cache was not started"):
            cache.wait_for_deleted(CONFIG_MAP, ObjectKey("ns", "one"), "u", 0)
        informer.replace([], "5")
        assert cache.wait_for_deleted(CONFIG_MAP, ObjectKey("ns", "one"), "u", 0)
        with pytest.raises(NotCached, match="of namespace other are not cached"):
            cache.wait_for_deleted(CONFIG_MAP, ObjectKey("other", "one"), "u", 0)
        with pytest.raises(NotCached, match="of namespace other are not cached"):
            cache.wait_for(CONFIG_MAP, ObjectKey("other", "one"), "1", 0)

    def test_questions_that_only_the_server_can_answer(self, cache: Cache) -> None:
        with pytest.raises(ValueError, match="add an index named like the field"):
            cache.list(CONFIG_MAP, field_selector="data.x=1")
        with pytest.raises(ValueError, match="there is no index named 'owner'"):
            cache.list(CONFIG_MAP, index=("owner", "x"))


class TestReconciler:
    @pytest.mark.parametrize("nonsense", [5, True, "later", {"requeue": True}, Result])
    @pytest.mark.requirement("CT5", "CT6")
    def test_one_that_returns_nonsense(self, nonsense: Any) -> None:
        stream = io.StringIO()
        log.configure("error", "json", stream)
        cache: Any = FakeCache()
        calls: list[Request] = []

        def reconcile(ctx: Context, request: Request) -> Any:
            calls.append(request)
            return nonsense if len(calls) == 1 else None

        controller = Controller("nonsense", for_=CONFIG_MAP, reconciler=reconcile, cache=cache)
        stop = threading.Event()
        thread = threading.Thread(target=controller.run, args=(stop,), daemon=True)
        thread.start()
        try:
            eventually(lambda: bool(cache.by_kind[CONFIG_MAP].registrations))
            obj: Object = {"metadata": {"name": "one", "namespace": "ns"}}
            cache.by_kind[CONFIG_MAP].deliver(Added(stored(CONFIG_MAP, obj)))
            eventually(lambda: len(calls) == 2)  # it is tried again, as after any error
        finally:
            stop.set()
            thread.join()
            log.configure("warning", "text", None)
        lines = [json.loads(line) for line in stream.getvalue().splitlines()]
        assert [line["name"] for line in lines] == ["one"]
        kind = type(nonsense).__name__
        assert f"reconcile must return a Result or None, got {kind}: return Result(" in lines[0]["err"]

    @pytest.mark.parametrize(
        ("reconciler", "message"),
        [
            (42, "must be an object with a method reconcile"),
            (lambda: None, "must take a context and a request: too many positional arguments"),
            (
                lambda ctx, request, more: None,
                "must take a context and a request: missing a required argument: 'more'",
            ),
            (type("Mirror", (), {"reconcile": idle}), r"give an object, Mirror\(...\), not its class"),
        ],
    )
    def test_what_is_no_reconciler(self, reconciler: Any, message: str) -> None:
        cache: Any = FakeCache()
        with pytest.raises(TypeError, match=f"^reconciler: {message}"):
            Controller("c", for_=CONFIG_MAP, reconciler=reconciler, cache=cache)

    def test_async_functions_and_generators(self) -> None:
        async def later(ctx: Context, request: Request) -> None: ...

        def bit_by_bit(ctx: Context, request: Request) -> Iterator[None]:
            yield

        cache: Any = FakeCache()
        wrong: Any
        for wrong in (later, bit_by_bit):
            with pytest.raises(TypeError, match="neither an async function nor a generator"):
                Controller("c", for_=CONFIG_MAP, reconciler=wrong, cache=cache)

    def test_delays_that_are_none(self) -> None:
        with pytest.raises(ValueError, match="requeue_after: must be 0 or more seconds, got -1"):
            Result(requeue_after=-1)
        wrong: Any
        for wrong in ("5", None, True):
            with pytest.raises(TypeError, match="requeue_after: must be a number of seconds"):
                Result(wrong)

    def test_a_handler_that_is_none(self) -> None:
        wrong: Any = Kind("", "v1", "Secret", "secrets")
        with pytest.raises(TypeError, match="handler: must map an event to requests, as enqueue_own"):
            Watch(CONFIG_MAP, wrong)

    def test_predicates_that_are_none(self, cache: Cache) -> None:
        wrong: Any
        for wrong in (generation_changed(), [True], "app=web"):
            with pytest.raises(TypeError, match=r"predicates: must be a list .* \[generation_changed\(\)\]"):
                Controller("odd", for_=CONFIG_MAP, reconciler=idle, cache=cache, predicates=wrong)

    def test_a_client_in_place_of_a_cache(self, client: Client) -> None:
        wrong: Any = client
        with pytest.raises(TypeError, match=r"cache: must be a Cache, such as Cache\(client\)"):
            Controller("odd", for_=CONFIG_MAP, reconciler=idle, cache=wrong)


class TestManager:
    def test_one_cache_in_place_of_several(self, cache: Cache) -> None:
        wrong: Any = cache
        with pytest.raises(TypeError, match=r"caches: must be several caches, such as \[cache\]"):
            Manager(caches=wrong)

    def test_two_controllers_of_one_name(self) -> None:
        cache: Any = FakeCache()
        manager = Manager()
        manager.add(Controller("twice", for_=CONFIG_MAP, reconciler=idle, cache=cache))
        with pytest.raises(
            ValueError, match="controller 'twice': another controller of this manager has the name"
        ):
            manager.add(Controller("twice", for_=SECRET, reconciler=idle, cache=cache))
        Manager().add(Controller("twice", for_=SECRET, reconciler=idle, cache=cache))

    @pytest.mark.requirement("CT1")
    def test_a_controller_that_is_started_twice(self) -> None:
        cache: Any = FakeCache()
        controller = Controller("again", for_=CONFIG_MAP, reconciler=idle, cache=cache)
        stop = threading.Event()
        stop.set()
        controller.run(stop)
        with pytest.raises(RuntimeError, match="controller again has been started before"):
            controller.run(stop)

    def test_what_cannot_be_run(self) -> None:
        wrong: Any
        for wrong in (42, idle, Manager):
            with pytest.raises(TypeError, match=r"runnable: must be an object with a method run\(stop\)"):
                Manager().add(wrong)


class TestConfiguration:
    @pytest.mark.requirement("CL1")
    def test_a_kubeconfig_that_is_missing(self, tmp_path: Path) -> None:
        missing = tmp_path / "none"
        with pytest.raises(ConfigError, match=f"kubeconfig {missing} does not exist: name another file"):
            Client.from_config(kubeconfig=missing)
        with pytest.raises(ConfigError, match=rf"\$KUBECONFIG names {missing}, and no such file exists"):
            load_config(environ={"KUBECONFIG": str(missing)})

    @pytest.mark.requirement("CL1")
    def test_no_configuration_at_all(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"give a kubeconfig, set \$KUBECONFIG, or run in a pod"):
            load_config(environ={"HOME": str(tmp_path)})
