"""Figures of the work queue: `python -m tests.bench.workqueue`.

Rounds of add, get and done a second with ten threads (the figure to hold: 50,000), and the time from an add to
its hand-out to a waiting worker (the figure: 5 ms at the 99th percentile).
"""

from __future__ import annotations

import threading
import time

from captf_runtime.queue import WorkQueue

THREADS = 10
ROUNDS = 30_000
HAND_OFFS = 2_000
PAUSE = 0.0005


def throughput(threads: int = THREADS, rounds: int = ROUNDS) -> float:
    """Rounds of add, get, done a second, each thread with keys of its own."""
    queue: WorkQueue[tuple[int, int]] = WorkQueue()

    def work(number: int) -> None:
        for round_ in range(rounds):
            queue.add((number, round_))
            with queue.process():
                continue

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return threads * rounds / (time.perf_counter() - start)


def hand_off(threads: int = THREADS, count: int = HAND_OFFS) -> list[float]:
    """Seconds from each add to its hand-out, sorted; the workers are waiting."""
    queue: WorkQueue[float] = WorkQueue()
    seen: list[float] = []
    all_seen = threading.Event()

    def work() -> None:
        while True:
            with queue.process() as item:
                if item is None:
                    return
                seen.append(time.perf_counter() - item.key)
                if len(seen) == count:
                    all_seen.set()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    pause = threading.Event()
    for _ in range(count):
        queue.add(time.perf_counter())
        pause.wait(PAUSE)
    all_seen.wait(60)
    queue.shutdown()
    for worker in workers:
        worker.join()
    return sorted(seen)


def main() -> None:
    """Measure and print."""
    print(f"add-get-done with {THREADS} threads: {throughput():>12,.0f} a second")
    delays = hand_off()
    for name, share in (("median", 0.5), ("99th percentile", 0.99)):
        print(f"hand-off, {name:<15}: {delays[int(len(delays) * share)] * 1000:>18.3f} ms")


if __name__ == "__main__":
    main()
