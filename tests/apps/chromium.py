"""Headless Chromium with a page that starts workers.

    chromium.py DIR WORKERS WORD ...

Serves page.html and worker.js on a port of this machine, and lets `WORD ... chromium` load the page and print it. The
last script of the page is answered when the page has sent its result: only then it is loaded. Prints one line of
key=value numbers, as the page was printed; whether they are right is judged by the caller:

    part=chromium workers=N counter=C rounds=R primes=P pixels=X hash=H sent=S

counter, a plain number that the workers have added to under a lock, must be rounds; primes must be 17984 for each
worker; pixels and hash must always be the same for as many workers; sent, whether the page sent what it shows, must
be 1.
"""

import html
import http.server
import os
import re
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))


class Page(http.server.BaseHTTPRequestHandler):
    """The page and its result."""

    protocol_version = "HTTP/1.1"
    result = None
    arrived = threading.Event()

    def answer(self, kind, body):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        # Without these two a page gets no shared memory.
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        name = self.path.split("?")[0].strip("/")
        if name == "wait.js":
            Page.arrived.wait(150)
            return self.answer("text/javascript", b"")
        kinds = {"page.html": "text/html", "worker.js": "text/javascript"}
        if name not in kinds:
            return self.send_error(404)
        with open(os.path.join(HERE, name), "rb") as file:
            self.answer(kinds[name], file.read())

    def do_POST(self):
        Page.result = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.answer("text/plain", b"")
        Page.arrived.set()

    def log_message(self, *_):
        pass


def main():
    directory, workers, words = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3:]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/page.html?{workers}"
    browser = subprocess.run(
        [*words, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server",
         f"--user-data-dir={directory}/profile", "--dump-dom", address],
        close_fds=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "HOME": directory, "XDG_CONFIG_HOME": directory, "XDG_CACHE_HOME": directory},
    )
    shown = re.search(r'<p id="result">(.*?)</p>', browser.stdout)
    if browser.returncode != 0 or not shown or not Page.result:
        sys.exit(f"exit status {browser.returncode}, sent: {Page.result}\n{browser.stdout}\n{browser.stderr}")
    line = html.unescape(shown.group(1))
    print(f"{line} sent={int(line == 'part=chromium ' + Page.result)}", flush=True)


main()
