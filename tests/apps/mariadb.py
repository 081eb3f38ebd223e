"""MariaDB under sysbench, both under the lock.

    mariadb.py DIR THREADS EVENTS WORD ...

Makes a database in DIR, starts `WORD ... mariadbd` on it, and lets `WORD ... sysbench` make EVENTS events in all in
THREADS threads, first of its own oltp_read_write on four tables, then of transfer.lua, which moves money between
accounts and looks whether any is missing. Prints one line of key=value numbers; whether they are right is judged by the
caller:

    part=mariadb oltp=O oltp_per_second=S errors=E rows=R tables=T movements=M transfers=F balance=B bad_tables=C exit=X

oltp and transfers: the events that sysbench has made; errors: those that it had to make again. rows, of the four
tables, must be 1000 * tables; movements, the records of transfers, must be transfers; balance, the sum of all, must be
20000; bad_tables, those of all six of which CHECK TABLE EXTENDED says something else than OK, and exit must be 0.
"""

import os
import re
import subprocess
import sys

import servers

TABLES, ROWS = 4, 1000


def sysbench(words, socket, threads, events, script, *options):
    """Runs a script; returns its events, the errors that it ignored, and the events per second."""
    fixed = ["sysbench", script, "--db-driver=mysql", f"--mysql-socket={socket}", "--mysql-user=root",
             "--mysql-db=test"]
    servers.run([*fixed, *options, "prepare"])
    said = servers.run([*words, *fixed, *options, f"--threads={threads}", f"--events={events}", "--time=0", "run"])
    fields = ("total number of events", "ignored errors")
    events, errors = (int(re.search(rf"{field}:\s+(\d+)", said).group(1)) for field in fields)
    return events, errors, re.search(r"transactions:\s+\d+\s+\(([0-9.]+) per sec", said).group(1)


def main():
    directory, threads, events, words = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
    data, socket, log = f"{directory}/data", f"{directory}/socket", f"{directory}/mariadb.log"
    user = ["--user=root"] if os.geteuid() == 0 else []
    servers.run(["mariadb-install-db", "--no-defaults", *user, f"--datadir={data}",
                 "--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=8M"])
    server = servers.start(
        [*words, "mariadbd", "--no-defaults", *user, f"--datadir={data}", f"--socket={socket}", "--skip-networking",
         f"--pid-file={directory}/pid", "--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M",
         "--innodb-flush-log-at-trx-commit=0", "--skip-grant-tables", "--max-connections=200", "--thread-cache-size=4"],
        stdout=open(log, "w"), stderr=subprocess.STDOUT,
    )
    client = ["mariadb", "--no-defaults", f"--socket={socket}", "--user=root", "-N", "-B", "-e"]

    def ask(query):
        return servers.run([*client, query])

    try:
        servers.wait_until(lambda: os.path.exists(socket) and succeeds([*client, "SELECT 1"]), server, log)
        ask("CREATE DATABASE test")
        sizes = [f"--tables={TABLES}", f"--table-size={ROWS}"]
        oltp, errors, rate = sysbench(words, socket, threads, events, "oltp_read_write", *sizes)
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "transfer.lua")
        transfers, _, _ = sysbench(words, socket, threads, events, script)
        tables = [f"test.sbtest{number}" for number in range(1, TABLES + 1)]
        rows = sum(int(ask(f"SELECT COUNT(*) FROM {table}")) for table in tables)
        everything = tables + ["test.account", "test.movement"]
        checked = ask(f"CHECK TABLE {', '.join(everything)} EXTENDED").splitlines()
        good = sum(line.split("\t")[-2:] == ["status", "OK"] for line in checked)
        numbers = {"movements": ask("SELECT COUNT(*) FROM test.movement"),
                   "balance": ask("SELECT SUM(balance) FROM test.account")}
        server.terminate()
        servers.facts(part="mariadb", oltp=oltp, oltp_per_second=rate, errors=errors, rows=rows, tables=TABLES,
                      transfers=transfers,
                      **{key: value.strip() for key, value in numbers.items()},
                      bad_tables=len(everything) - good, exit=server.wait(120))
    finally:
        server.kill()


def succeeds(command):
    return servers.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait() == 0


main()
