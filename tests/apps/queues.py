"""Queues, conditions, barriers and thread pools of the standard library, with checked sums.

    queues.py THREADS ITEMS

Each part moves the numbers 0 … ITEMS-1 through THREADS threads (two at least) and prints how many arrived and their
sum. Whether they are right is judged by the caller:

    part=queue items=N sum=S
    part=condition items=N sum=S
    part=barrier items=N sum=S
    part=pool items=N sum=S

CPython's locks are semaphores (sem_t); its interpreter lock is a mutex with a condition variable that waits with a
time-out.
"""

import os
import queue
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool

CAPACITY = 16


def run(count, work):
    """Runs work(0) … work(count - 1), each in a thread; an exception in one of them ends the program."""

    def guarded(number):
        try:
            work(number)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Total:
    """A count and a sum behind a lock."""

    def __init__(self):
        self.lock = threading.Lock()
        self.items = 0
        self.sum = 0

    def add(self, value):
        with self.lock:
            self.items += 1
            self.sum += value

    def show(self, part):
        print(f"part={part} items={self.items} sum={self.sum}", flush=True)


class Buffer:
    """A bounded buffer of one lock and two conditions: what queue.Queue is, with its waits in plain sight."""

    def __init__(self):
        self.values = []
        lock = threading.RLock()
        self.not_full = threading.Condition(lock)
        self.not_empty = threading.Condition(lock)

    def put(self, value):
        with self.not_full:
            self.not_full.wait_for(lambda: len(self.values) < CAPACITY)
            self.values.append(value)
            self.not_empty.notify()

    def get(self):
        with self.not_empty:
            # The time-out is never reached; with one, the wait is a timed one.
            if not self.not_empty.wait_for(lambda: self.values, timeout=600):
                raise TimeoutError("nothing arrived for 60 s")
            value = self.values.pop(0)
            self.not_full.notify_all()
            return value


def through(channel, threads, items):
    """Half of the threads put, half get until they meet the end mark, which the last producer puts once for each."""
    producers = threads // 2
    consumers = threads - producers
    total, finished = Total(), Total()

    def produce(number):
        for value in range(number, items, producers):
            channel.put(value)
        with finished.lock:
            finished.items += 1
            last = finished.items == producers
        if last:
            for _ in range(consumers):
                channel.put(None)

    def consume():
        while (value := channel.get()) is not None:
            total.add(value)

    run(threads, lambda number: produce(number) if number < producers else consume())
    return total


def through_barrier(threads, items):
    """In each round every thread adds one number; between two barriers the sum of the round must be complete."""
    total, barrier = Total(), threading.Barrier(threads)
    rounds = items // threads

    def work(number):
        for turn in range(rounds):
            total.add(turn * threads + number)
            barrier.wait()
            if total.items != (turn + 1) * threads:
                raise AssertionError(f"round {turn}: {total.items} numbers, not {(turn + 1) * threads}")
            barrier.wait()

    run(threads, work)
    for value in range(rounds * threads, items):
        total.add(value)
    return total


def through_pools(threads, items):
    """Half of the numbers through a multiprocessing.pool.ThreadPool, half through a concurrent.futures executor."""
    total = Total()
    half = items // 2
    with ThreadPool(threads) as pool:
        for value in pool.imap_unordered(lambda value: value, range(half), chunksize=8):
            total.add(value)
    with ThreadPoolExecutor(threads) as pool:
        for value in pool.map(lambda value: value, range(half, items)):
            total.add(value)
    return total


def main():
    threads, items = int(sys.argv[1]), int(sys.argv[2])
    if threads < 2:
        sys.exit("queues.py: needs two threads at least")
    sys.setswitchinterval(0.0005)
    through(queue.Queue(CAPACITY), threads, items).show("queue")
    through(Buffer(), threads, items).show("condition")
    through_barrier(threads, items).show("barrier")
    through_pools(threads, items).show("pool")


main()
