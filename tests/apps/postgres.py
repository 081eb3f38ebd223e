"""PostgreSQL under pgbench, both under the lock.

    postgres.py DIR CLIENTS TRANSACTIONS WORD ...

Makes a cluster in DIR, starts `WORD ... postgres` in it, and lets `WORD ... pgbench` make TRANSACTIONS transactions in
all, in CLIENTS connections and as many threads. Each adds an amount to an account, a teller and the one branch, and
records it. (Its server has no threads: its processes wait on semaphores in shared memory; pgbench has threads.) Prints
one line of key=value numbers; whether they are right is judged by the caller:

    part=postgres transactions=T accounts=A tellers=B branches=C history=D rows=N exit=X

A, B, C and D, sums of balances and of the recorded amounts, must be equal; rows, the number of records, must be T; exit
must be 0. The indexes are checked, too: an error there ends this program.
"""

import glob
import os
import re
import signal
import subprocess
import sys

import servers


def main():
    directory, clients, transactions, words = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    programs = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
    if not programs:
        sys.exit("there is no /usr/lib/postgresql/*/bin/postgres")
    at = os.path.dirname(programs[-1])
    home = os.path.abspath(os.path.join(directory, "pg"))
    user = servers.as_somebody(home)
    data, log = f"{home}/data", os.path.join(directory, "postgres.log")
    servers.run([*user, f"{at}/initdb", "-D", data, "-A", "trust", "-U", "postgres", "-N", "--locale=C", "-E", "UTF8"],
                cwd=home)
    settings = ["listen_addresses=", f"unix_socket_directories={home}", "fsync=off", f"max_connections={clients + 10}",
                "shared_buffers=32MB", "log_min_messages=warning"]
    options = [word for setting in settings for word in ("-c", setting)]
    server = servers.start([*words, *user, f"{at}/postgres", "-D", data, *options], cwd=home, stdout=open(log, "w"),
                           stderr=subprocess.STDOUT)
    connection = ["-h", home, "-U", "postgres"]
    psql = [*user, f"{at}/psql", *connection, "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", "postgres", "-c"]
    try:
        probe = [*user, f"{at}/pg_isready", "-q", *connection]
        servers.wait_until(lambda: servers.start(probe, cwd=home).wait() == 0, server, log)
        servers.run([*user, f"{at}/pgbench", *connection, "-i", "-q", "-s", "1", "postgres"], cwd=home)
        each = max(transactions // clients, 1)
        said = servers.run([*words, *user, f"{at}/pgbench", *connection, "-n", "-c", clients, "-j", clients,
                            "-t", each, "postgres"], cwd=home)
        made = int(re.search(r"actually processed: (\d+)/", said).group(1))

        def ask(query):
            return int(servers.run([*psql, query], cwd=home))

        numbers = {
            "accounts": ask("SELECT sum(abalance) FROM pgbench_accounts"),
            "tellers": ask("SELECT sum(tbalance) FROM pgbench_tellers"),
            "branches": ask("SELECT sum(bbalance) FROM pgbench_branches"),
            "history": ask("SELECT sum(delta) FROM pgbench_history"),
            "rows": ask("SELECT count(*) FROM pgbench_history"),
        }
        ask("CREATE EXTENSION amcheck; "
            "SELECT count(bt_index_check(oid, true)) FROM pg_class WHERE relname LIKE 'pgbench%pkey'")
        server.send_signal(signal.SIGINT)
        servers.facts(part="postgres", transactions=made, **numbers, exit=server.wait(60))
    finally:
        server.kill()


main()
