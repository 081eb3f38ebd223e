"""nginx that reads its files in a pool of threads, and clients that know what each answer must be.

    nginx.py DIR THREADS REQUESTS WORD ...

Starts `WORD ... nginx` with one worker process, whose pool of THREADS threads reads files for it (`aio threads`), and
asks it for files and parts of files, REQUESTS in all in 16 connections. Prints one line of key=value numbers; whether
they are right is judged by the caller:

    part=nginx requests=R wrong=W bytes=B logged=L logged_bytes=M alerts=A exit=X

wrong, answers with another status, length or content than the file's, must be 0; the access log must have R lines and
add up to B bytes; alerts, lines of the error log, and exit must be 0.
"""

import hashlib
import http.client
import os
import random
import signal
import sys
import threading
import traceback

import servers

CONNECTIONS = 16
FILES = 24

CONFIGURATION = """
daemon off;
{user}
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/error.log warn;
thread_pool default threads={threads} max_queue=65536;
events {{ worker_connections 256; }}
http {{
    log_format sizes '$status $body_bytes_sent';
    access_log {directory}/access.log sizes;
    client_body_temp_path {directory}/t1; proxy_temp_path {directory}/t2; fastcgi_temp_path {directory}/t3;
    uwsgi_temp_path {directory}/t4; scgi_temp_path {directory}/t5;
    keepalive_requests 1000000;
    aio threads;
    sendfile off;
    output_buffers 2 16k;
    server {{
        listen 127.0.0.1:{port};
        root {directory}/files;
    }}
}}
"""


class Client:
    """One connection and what it saw."""

    def __init__(self, number, port, contents, requests):
        self.number, self.port, self.contents, self.requests = number, port, contents, requests
        self.wrong = self.bytes = 0
        self.thread = threading.Thread(target=self.guarded)

    def guarded(self):
        try:
            self.work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def work(self):
        chance = random.Random(self.number)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        for _ in range(self.requests):
            name = chance.randrange(FILES)
            wanted, headers, status = self.contents[name], {}, 200
            if chance.randrange(3) == 0:
                first = chance.randrange(len(wanted))
                last = chance.randrange(first, len(wanted))
                wanted, headers, status = wanted[first : last + 1], {"Range": f"bytes={first}-{last}"}, 206
            connection.request("GET", f"/{name}", headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            self.wrong += answer.status != status or body != wanted
            self.bytes += len(body)
        connection.close()


def make_files(directory):
    """Files of up to 200 kB whose content depends on their number; all of them."""
    os.mkdir(f"{directory}/files", 0o755)
    contents = []
    for name in range(FILES):
        block = hashlib.sha512(str(name).encode()).digest()
        contents.append((block * 3200)[: 1000 + 8600 * name])
        with open(f"{directory}/files/{name}", "wb") as file:
            file.write(contents[-1])
    return contents


def lines(path):
    return open(path).read().splitlines()


def main():
    directory, threads, requests, words = os.path.abspath(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    contents, port = make_files(directory), servers.free_port()
    configuration = f"{directory}/nginx.conf"
    with open(configuration, "w") as file:
        user = "user root;" if os.geteuid() == 0 else ""
        file.write(CONFIGURATION.format(directory=directory, threads=threads, port=port, user=user))
    error_log = f"{directory}/error.log"
    server = servers.start([*words, "/usr/sbin/nginx", "-c", configuration, "-e", error_log])
    try:
        servers.wait_until(lambda: listens(port), server, error_log)
        clients = [Client(number, port, contents, requests // CONNECTIONS) for number in range(CONNECTIONS)]
        for client in clients:
            client.thread.start()
        for client in clients:
            client.thread.join()
        server.send_signal(signal.SIGQUIT)
        status = server.wait(60)
        logged = [line.split() for line in lines(f"{directory}/access.log")]
        servers.facts(
            part="nginx", requests=sum(client.requests for client in clients),
            wrong=sum(client.wrong for client in clients), bytes=sum(client.bytes for client in clients),
            logged=len(logged), logged_bytes=sum(int(size) for _, size in logged),
            alerts=len(lines(error_log)), exit=status,
        )
        sys.stderr.write(open(error_log).read())
    finally:
        server.kill()


def listens(port):
    try:
        http.client.socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


main()
