"""memcached under load from clients that know what each answer must be, then under memcaslap with verification.

    memcache.py DIR THREADS SECONDS OPERATIONS [WORD ...]

The server and memcaslap are started as `WORD ... memcached` and `WORD ... memcaslap`: the words choose the lock. For
SECONDS the clients of this program, one connection and one thread each, send batches of `incr` on four counters that
all share and of `set`, `get`, `append` on keys of their own. An increment that two server threads made at once would
answer the same number twice. Then memcaslap makes OPERATIONS sets and gets and compares every value. Prints three lines
of key=value numbers; whether they are right is judged by the caller:

    part=clients threads=T increments=N distinct=D counters=C wrong=W server_incr=I server_set=S client_set=Q
    part=memcaslap operations=N gets=G sets=S get_misses=M verify_misses=V verify_failed=F server_gets=A
        server_sets=B exit=E
    part=server exit=E

Both exits must be 0; distinct, counters and server_incr must equal increments; wrong must be 0; server_set must equal
client_set; the server's numbers for memcaslap must equal memcaslap's.
"""

import os
import re
import socket
import subprocess
import sys
import threading
import time
import traceback

COUNTERS = 4
BATCH = 64

MEMCASLAP_CONFIGURATION = """key
16 32 1
value
64 512 1
cmd
0 0.3
1 0.7
"""


class Connection:
    """One client connection, speaking the text protocol."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=600)
        self.input = self.socket.makefile("rb")

    def send(self, *commands):
        self.socket.sendall(b"".join(command.encode() + b"\r\n" for command in commands))

    def line(self):
        line = self.input.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        return line[:-2].decode()

    def value(self):
        """The answer to one `get`: the value, or None."""
        first = self.line()
        if first == "END":
            return None
        data = self.input.read(int(first.split()[3]) + 2)[:-2].decode()
        if self.line() != "END":
            raise ValueError(f"no END after the value that began {first!r}")
        return data

    def stats(self):
        self.send("stats")
        numbers = {}
        while (line := self.line()) != "END":
            _, name, value = line.split(" ", 2)
            numbers[name] = value
        return numbers


class Client:
    """What one client thread does, and what it saw."""

    def __init__(self, number, port, deadline):
        self.number, self.port, self.deadline = number, port, deadline
        self.answers = [[] for _ in range(COUNTERS)]
        self.wrong = 0
        self.sets = 0
        self.thread = threading.Thread(target=self.guarded)

    def guarded(self):
        try:
            self.work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def work(self):
        connection, turn = Connection(self.port), 0
        while turn == 0 or time.monotonic() < self.deadline:
            self.increment(connection)
            self.own_keys(connection, turn)
            turn += 1

    def increment(self, connection):
        connection.send(*(f"incr counter{i % COUNTERS} 1" for i in range(BATCH)))
        for i in range(BATCH):
            self.answers[i % COUNTERS].append(int(connection.line()))

    def own_keys(self, connection, turn):
        key, value = f"own-{self.number}-{turn % 50}", f"{self.number}:{turn}:" + "x" * (turn % 700)
        connection.send(
            f"set {key} 0 0 {len(value)}", value, f"get {key}", f"append {key} 0 0 3", "end", f"get {key}"
        )
        answers = connection.line(), connection.value(), connection.line(), connection.value()
        self.wrong += answers != ("STORED", value, "STORED", value + "end")
        self.sets += 2


def start_server(directory, threads, words):
    """Starts memcached on a port of its own choice; returns the process and the port."""
    port_file = os.path.join(directory, "port")
    command = [*words, "memcached", "-t", str(threads), "-l", "127.0.0.1", "-p", "-1", "-m", "256", "-A"]
    if os.geteuid() == 0:
        command += ["-u", "root"]
    server = subprocess.Popen(command, env={**os.environ, "MEMCACHED_PORT_FILENAME": port_file}, close_fds=False)
    for _ in range(3000):
        if os.path.exists(port_file):
            return server, int(re.search(r"TCP INET: (\d+)", open(port_file).read()).group(1))
        if server.poll() is not None:
            sys.exit(f"memcached ended with {server.returncode} before it listened")
        time.sleep(0.01)
    sys.exit("memcached did not listen within 30 s")


def run_clients(control, threads, port, seconds):
    for i in range(COUNTERS):
        control.send(f"set counter{i} 0 0 1", "0")
        if control.line() != "STORED":
            sys.exit("cannot set a counter")
    before = control.stats()
    deadline = time.monotonic() + seconds
    clients = [Client(number, port, deadline) for number in range(max(threads, 4))]
    for client in clients:
        client.thread.start()
    for client in clients:
        client.thread.join()
    after = control.stats()

    counters, distinct = 0, 0
    for i in range(COUNTERS):
        control.send(f"get counter{i}")
        counters += int(control.value())
        distinct += len(set().union(*(client.answers[i] for client in clients)))
    increments = sum(len(answers) for client in clients for answers in client.answers)
    print(
        f"part=clients threads={after['threads']} increments={increments} distinct={distinct} counters={counters}"
        f" wrong={sum(client.wrong for client in clients)}"
        f" server_incr={int(after['incr_hits']) - int(before['incr_hits'])}"
        f" server_set={int(after['cmd_set']) - int(before['cmd_set'])}"
        f" client_set={sum(client.sets for client in clients)}",
        flush=True,
    )


def run_memcaslap(control, directory, threads, port, operations, words):
    configuration = os.path.join(directory, "memcaslap.cfg")
    with open(configuration, "w") as file:
        file.write(MEMCASLAP_CONFIGURATION)
    before = control.stats()
    done = subprocess.run(
        [*words, "memcaslap", f"--servers=127.0.0.1:{port}", f"--threads={threads}", f"--concurrency={threads}",
         f"--execute_number={operations}", f"--cfg_cmd={configuration}", "--win_size=1k", "--verify=1.0"],
        stdout=subprocess.PIPE,
        text=True,
        close_fds=False,
    )
    after = control.stats()
    said = dict(re.findall(r"^(\w+): (\d+)$", done.stdout, re.MULTILINE))
    print(
        f"part=memcaslap operations={operations} gets={said.get('cmd_get')} sets={said.get('cmd_set')}"
        f" get_misses={said.get('get_misses')} verify_misses={said.get('verify_misses')}"
        f" verify_failed={said.get('verify_failed')}"
        f" server_gets={int(after['cmd_get']) - int(before['cmd_get'])}"
        f" server_sets={int(after['cmd_set']) - int(before['cmd_set'])} exit={done.returncode}",
        flush=True,
    )


def main():
    directory, threads, seconds, operations = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    words = sys.argv[5:]
    server, port = start_server(directory, threads, words)
    try:
        control = Connection(port)
        run_clients(control, threads, port, seconds)
        run_memcaslap(control, directory, threads, port, operations, words)
        control.send("shutdown")
        print(f"part=server exit={server.wait(30)}", flush=True)
    finally:
        server.kill()


main()
