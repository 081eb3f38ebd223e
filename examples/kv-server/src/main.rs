//! A server with a subset of memcached's text protocol. All keys are in one table under one lock: an ordinary one, one
//! whose sections a server thread runs, or one that finds out itself which is better.
//!
//! ```sh
//! cargo run --release --package flashlock-example-kv-server -- --lock adaptive
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `table.rs` | the table, and its lock |
//! | `connection.rs` | the protocol |
//!
//! A thread serves each connection.

mod connection;
mod table;

use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use connection::{Shared, serve};
use table::{Kind, Table};

const USAGE: &str = "\
usage: kv-server [--listen ADDRESS] [--lock ordinary|delegated|adaptive]

  --listen ADDRESS   where it listens; by default 127.0.0.1:11211, port 0 is any
  --lock LOCK        the table's lock; by default adaptive

It says on its standard output where it listens. Stop it with a signal.
";

struct Options {
    listen: String,
    lock: Kind,
}

impl Options {
    /// `None`: help is wanted.
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self { listen: "127.0.0.1:11211".to_owned(), lock: Kind::Adaptive };
        while let Some(word) = words.next() {
            if matches!(word.as_str(), "-h" | "--help") {
                return Ok(None);
            }
            let value = words.next().ok_or(format!("{word} needs a value, or is unknown"))?;
            match word.as_str() {
                "--listen" => options.listen = value,
                "--lock" => {
                    let kind = Kind::ALL.into_iter().find(|(name, _)| *name == value);
                    let (_, kind) =
                        kind.ok_or(format!("--lock must be ordinary, delegated or adaptive, not '{value}'"))?;
                    options.lock = kind;
                }
                other => return Err(format!("there is no option {other}")),
            }
        }
        Ok(Some(options))
    }
}

fn accept(stream: TcpStream, shared: &Arc<Shared>) {
    shared.connections.fetch_add(1, Relaxed);
    shared.accepted.fetch_add(1, Relaxed);
    let of_thread = shared.clone();
    let begun = thread::Builder::new().name("connection".to_owned()).spawn(move || {
        // A client that goes without a word is no failure of the server.
        let _ = serve(stream, &of_thread);
        of_thread.connections.fetch_sub(1, Relaxed);
    });
    if let Err(error) = begun {
        shared.connections.fetch_sub(1, Relaxed);
        eprintln!("kv-server: no thread for a connection: {error}");
    }
}

fn run(options: &Options) -> io::Result<()> {
    let listener = TcpListener::bind(&options.listen)?;
    let table = Table::new(options.lock)?;
    println!("kv-server: listening on {}, lock {}", listener.local_addr()?, options.lock.name());
    io::stdout().flush()?;
    let shared = Arc::new(Shared { table, connections: AtomicU64::new(0), accepted: AtomicU64::new(0) });
    loop {
        match listener.accept() {
            Ok((stream, _)) => accept(stream, &shared),
            // No file descriptor is free, or the like: others may end.
            Err(error) => {
                eprintln!("kv-server: cannot accept a connection: {error}");
                thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)) {
        Ok(None) => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        Ok(Some(options)) => match run(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("kv-server: {}: {error}", options.listen);
                ExitCode::FAILURE
            }
        },
        Err(what) => {
            eprint!("kv-server: {what}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}
