"""What the drivers of servers share: starting one under a lock, as a user that it accepts, and ending it."""

import os
import pwd
import socket
import subprocess
import sys
import time


def start(command, **options):
    """Starts a program; it inherits what counts the locks' events."""
    return subprocess.Popen([str(word) for word in command], close_fds=False, **options)


def run(command, wanted=0, **options):
    """Runs a program to its end and returns what it printed; its exit status must be as wanted."""
    done = subprocess.run(
        [str(word) for word in command], close_fds=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        **options
    )
    if done.returncode != wanted:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


def as_somebody(directory):
    """The words that start a program which refuses to run as root, and a new directory that it may write to."""
    os.mkdir(directory, 0o700)
    if os.geteuid() != 0:
        return []
    nobody = pwd.getpwnam("nobody")
    os.chown(directory, nobody.pw_uid, nobody.pw_gid)
    return ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups", "--"]


def wait_until(ready, server, log, seconds=60):
    """Waits for a server to be ready; shows its log if it ends instead."""
    end = time.monotonic() + seconds
    while not ready():
        if server.poll() is not None or time.monotonic() > end:
            said = open(log, errors="replace").read() if os.path.exists(log) else ""
            sys.exit(f"{server.args}: not ready, exit status {server.poll()}\n{said}")
        time.sleep(0.02)


def free_port():
    """A port that nobody listens on just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def facts(**pairs):
    """Prints a line of key=value numbers."""
    print(" ".join(f"{key}={value}" for key, value in pairs.items()), flush=True)
