//! The server under each lock, as its clients see it: what it answers, and that nothing is lost. memcaslap and
//! memccapable (Debian: `libmemcached-tools`) must be installed: without them, their two tests fail.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

const LOCKS: [&str; 3] = ["ordinary", "delegated", "adaptive"];
/// Against hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// A server that ends with this.
struct Running {
    child: Child,
    address: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn with(lock: &str, environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kv-server"));
        command.args(["--listen", "127.0.0.1:0", "--lock", lock]).stdout(Stdio::piped());
        let mut child = command.envs(environment.iter().copied()).spawn().expect("it can be started");
        let mut line = String::new();
        let said = child.stdout.as_mut().expect("piped");
        BufReader::new(said).read_line(&mut line).expect("it says something");
        let address = line.split("listening on ").nth(1).and_then(|rest| rest.split(',').next());
        let address = address.unwrap_or_else(|| panic!("it said: {line}")).to_owned();
        Self { child, address }
    }

    fn client(&self) -> Client {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a limit");
        stream.set_nodelay(true).expect("no delay");
        Client { input: BufReader::new(stream.try_clone().expect("one more")), output: stream }
    }

    fn stat(&self, name: &str) -> String {
        let lines = self.client().asks("stats\r\n", "END\r\n");
        let found = lines.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        found.unwrap_or_else(|| panic!("no {name} in {lines}")).to_owned()
    }
}

struct Client {
    input: BufReader<TcpStream>,
    output: TcpStream,
}

impl Client {
    /// The answer, until it ends so.
    fn asks(&mut self, command: &str, end: &str) -> String {
        self.output.write_all(command.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        while !answer.ends_with(end.as_bytes()) {
            let read = self.input.read_until(b'\n', &mut answer).expect("an answer");
            assert!(read > 0, "{command:?}: it ends with {:?}", String::from_utf8_lossy(&answer));
        }
        String::from_utf8(answer).expect("text")
    }

    /// It answers that. Another answer is told at its first line.
    fn expect(&mut self, command: &str, answer: &str) {
        self.output.write_all(command.as_bytes()).expect("sent");
        let mut rest = answer.as_bytes();
        while !rest.is_empty() {
            let mut line = Vec::new();
            self.input.read_until(b'\n', &mut line).expect("an answer");
            let text = String::from_utf8_lossy(&line);
            let expected = rest.strip_prefix(&line[..]).filter(|_| !line.is_empty());
            rest = expected.unwrap_or_else(|| panic!("{command:.100}: {text:?}, which is no part of {answer:.100}"));
        }
    }
}

#[test]
fn answers_are_memcacheds() {
    for lock in LOCKS {
        let running = Running::with(lock, &[]);
        let mut client = running.client();
        for (command, answer) in [
            ("get nothing\r\n", "END\r\n"),
            ("set a 5 0 3\r\nabc\r\n", "STORED\r\n"),
            ("get a\r\n", "VALUE a 5 3\r\nabc\r\nEND\r\n"),
            ("gets a\r\n", "VALUE a 5 3 1\r\nabc\r\nEND\r\n"),
            ("set empty 0 0 0\r\n\r\n", "STORED\r\n"),
            ("get a b empty\r\n", "VALUE a 5 3\r\nabc\r\nVALUE empty 0 0\r\n\r\nEND\r\n"),
            ("add a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("replace b 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("append b 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("append a 9 0 2\r\nde\r\n", "STORED\r\n"),
            ("prepend a 9 0 2\r\n__\r\n", "STORED\r\n"),
            ("gets a\r\n", "VALUE a 5 7 4\r\n__abcde\r\nEND\r\n"),
            ("add b 0 0 1\r\n7\r\n", "STORED\r\n"),
            ("replace b 0 0 2\r\n17\r\n", "STORED\r\n"),
            ("incr b 5\r\n", "22\r\n"),
            ("decr b 100\r\n", "0\r\n"),
            ("incr b 18446744073709551615\r\n", "18446744073709551615\r\n"),
            ("incr b 1\r\n", "0\r\n"),
            ("incr a 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
            ("incr b x\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"),
            ("incr nothing 1\r\n", "NOT_FOUND\r\n"),
            ("cas nothing 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n"),
            ("cas a 0 0 1 99\r\nx\r\n", "EXISTS\r\n"),
            ("cas a 0 0 1 4\r\nx\r\n", "STORED\r\n"),
            ("delete a\r\n", "DELETED\r\n"),
            ("delete a\r\n", "NOT_FOUND\r\n"),
            // Those without a reply, then one that has a reply.
            (
                "set q 0 0 1 noreply\r\nq\r\nincr b 3 noreply\r\ndelete q noreply\r\nget b q\r\n",
                "VALUE b 0 1\r\n3\r\nEND\r\n",
            ),
            // Several at once.
            ("get b\r\nget b\r\n", "VALUE b 0 1\r\n3\r\nEND\r\nVALUE b 0 1\r\n3\r\nEND\r\n"),
            ("version\r\n", concat!("VERSION ", env!("CARGO_PKG_VERSION"), "\r\n")),
            ("verbosity 1\r\n", "OK\r\n"),
            ("flush_all\r\n", "OK\r\n"),
            ("get b\r\n", "END\r\n"),
        ] {
            client.expect(command, answer);
        }
        assert_eq!((running.stat("lock").as_str(), running.stat("curr_items").as_str()), (lock, "0"));
        assert_eq!(running.stat("lock_server") == "none", lock != "delegated");
        client.output.write_all(b"quit\r\n").expect("sent");
        assert_eq!(client.input.read_to_end(&mut Vec::new()).expect("closed"), 0);
    }
}

#[test]
fn what_makes_no_sense_is_refused_and_the_connection_goes_on() {
    let running = Running::with("delegated", &[]);
    let mut client = running.client();
    let long = "k".repeat(251);
    for (command, answer) in [
        ("\r\n".to_owned(), "ERROR\r\n"),
        ("nonsense\r\n".to_owned(), "ERROR\r\n"),
        ("get\r\n".to_owned(), "ERROR\r\n"),
        ("set a 0 0\r\n".to_owned(), "ERROR\r\n"),
        ("set a x 0 1\r\n".to_owned(), "CLIENT_ERROR bad command line format\r\n"),
        ("set a 0 0 -1\r\n".to_owned(), "CLIENT_ERROR bad command line format\r\n"),
        ("delete\r\n".to_owned(), "CLIENT_ERROR bad command line format\r\n"),
        (format!("get {long}\r\n"), "CLIENT_ERROR bad command line format\r\n"),
        ("set a 0 0 3\r\ntoo long\r\n".to_owned(), "CLIENT_ERROR bad data chunk\r\n"),
        (
            format!("set a 0 0 {}\r\n{}\r\n", (1 << 20) + 1, "x".repeat((1 << 20) + 1)),
            "SERVER_ERROR object too large for cache\r\n",
        ),
    ] {
        client.expect(&command, answer);
        client.expect("get a\r\n", "END\r\n");
    }
    // Bytes of any kind, a megabyte of them.
    let value = "\r\nEND\r\n".repeat((1 << 20) / 7);
    client.expect(&format!("set big 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    client.expect("get big\r\n", &format!("VALUE big 0 {}\r\n{value}\r\nEND\r\n", value.len()));
    // A client that goes in the middle of a command does no harm.
    let mut goes = running.client();
    goes.output.write_all(b"set a 0 0 100\r\nabc").expect("sent");
    drop(goes);
    client.expect("get a\r\n", "END\r\n");
}

/// All clients add to one counter, each writes keys of its own and reads them again.
fn hammer(running: &Running, clients: u32, rounds: u32) {
    running.client().expect("set counter 0 0 1\r\n0\r\n", "STORED\r\n");
    thread::scope(|scope| {
        for me in 0..clients {
            scope.spawn(move || {
                let mut client = running.client();
                let mut last = 0;
                for round in 0..rounds {
                    let seen: u64 = client.asks("incr counter 1\r\n", "\r\n").trim_end().parse().expect("a number");
                    assert!(seen > last, "it was {last}, and is {seen}");
                    last = seen;
                    let (key, value) = (format!("{me}-{}", round % 10), format!("{me}:{round}"));
                    client.expect(&format!("set {key} {me} 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
                    let there = format!("VALUE {key} {me} {}\r\n{value}\r\nEND\r\n", value.len());
                    client.expect(&format!("get {key}\r\n"), &there);
                }
            });
        }
    });
    let total = clients * rounds;
    running.client().expect("incr counter 0\r\n", &format!("{total}\r\n"));
    assert_eq!(running.stat("cmd_incr"), (total + 1).to_string());
    assert_eq!(running.stat("cmd_set"), (total + 1).to_string());
    assert_eq!(running.stat("get_hits"), total.to_string());
}

#[test]
fn nothing_is_lost_under_any_lock() {
    for lock in LOCKS {
        hammer(&Running::with(lock, &[]), 6, 200);
    }
}

/// The file places the adaptive lock elsewhere: then it stays there.
#[test]
fn an_adaptive_lock_can_be_placed() {
    let running = Running::with("adaptive", &[("FLASHLOCK_RCL", "table=default")]);
    hammer(&running, 2, 50);
    assert_ne!(running.stat("lock_server"), "none");
    let running = Running::with("adaptive", &[("FLASHLOCK_RCL", "table=ordinary")]);
    hammer(&running, 2, 50);
    assert_eq!(running.stat("lock_server"), "none");
}

#[test]
fn wrong_usage() {
    for arguments in [&["--lock", "fast"][..], &["--lock"], &["--port", "1"]] {
        let done = Command::new(env!("CARGO_BIN_EXE_kv-server")).args(arguments).output().expect("it can be started");
        assert_eq!(done.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&done.stderr).contains("usage: kv-server"));
    }
}

/// What a program of libmemcached's says.
fn program(name: &str, arguments: &[&str]) -> String {
    let done = Command::new(name).args(arguments).output();
    let done = done.unwrap_or_else(|error| panic!("{name} of libmemcached-tools (`cargo xtask setup`): {error}"));
    let text = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(done.status.success(), "{name} {arguments:?}: {}\n{text}", done.status);
    text
}

/// libmemcached's own check of servers.
#[test]
fn memccapable_finds_no_fault() {
    for lock in LOCKS {
        let running = Running::with(lock, &[]);
        let (host, port) = running.address.split_once(':').expect("an address");
        let text = program("memccapable", &["-h", host, "-p", port, "-a"]);
        assert!(text.contains("All tests passed"), "{text}");
    }
}

/// memcaslap verifies a share of what it reads. What it says that it did, the server has counted.
#[test]
fn memcaslap_finds_what_it_wrote() {
    for lock in LOCKS {
        let running = Running::with(lock, &[]);
        let verified = ["-T", "2", "-c", "8", "-x", "20000", "-w", "1k", "-v", "1.0", "-X", "100"];
        let text = program("memcaslap", &[&["-s", &running.address][..], &verified].concat());
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}: ")));
            line.unwrap_or_else(|| panic!("no {name} in {text}")).trim().to_owned()
        };
        assert_eq!((of("get_misses"), of("verify_misses"), of("verify_failed")), ("0".into(), "0".into(), "0".into()));
        assert_ne!(of("cmd_get"), "0");
        assert_eq!((running.stat("cmd_get"), running.stat("cmd_set")), (of("cmd_get"), of("cmd_set")));
    }
}
