//! A client's connection: commands come in, answers go out. Each command is one section, or none.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::table::{How, Item, KEY, Outcome, Sum, Table, VALUE};

/// A command's line, at most: a `get` of a hundred long keys.
const LINE: u64 = 32 << 10;

const OK: &str = "OK\r\n";
const ERROR: &str = "ERROR\r\n";
const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format\r\n";
const BAD_CHUNK: &str = "CLIENT_ERROR bad data chunk\r\n";
const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument\r\n";
const NO_NUMBER: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
const TOO_LONG: &str = "CLIENT_ERROR line too long\r\n";
const TOO_LARGE: &str = "SERVER_ERROR object too large for cache\r\n";

/// Commands that may end with the word `noreply`.
const MAY_BE_QUIET: [&[u8]; 11] = [
    b"set",
    b"add",
    b"replace",
    b"append",
    b"prepend",
    b"cas",
    b"delete",
    b"incr",
    b"decr",
    b"flush_all",
    b"verbosity",
];

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) table: Table,
    pub(crate) connections: AtomicU64,
    pub(crate) accepted: AtomicU64,
}

struct Connection<'a> {
    shared: &'a Shared,
    input: BufReader<TcpStream>,
    output: BufWriter<TcpStream>,
}

/// What a command leaves.
enum Then {
    Goes,
    Ends,
}

/// Serves a client until it says `quit`, or has gone.
pub(crate) fn serve(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let output = BufWriter::new(stream.try_clone()?);
    let mut connection = Connection { shared, input: BufReader::new(stream), output };
    loop {
        // Answers to commands that came together go together.
        if connection.input.buffer().is_empty() {
            connection.output.flush()?;
        }
        let mut line = Vec::new();
        let read = (&mut connection.input).take(LINE).read_until(b'\n', &mut line)?;
        if read == 0 {
            return connection.output.flush();
        }
        let then = if line.last() == Some(&b'\n') {
            connection.command(&line)?
        } else if read as u64 == LINE {
            connection.say(TOO_LONG)?;
            Then::Ends
        } else {
            Then::Ends
        };
        if let Then::Ends = then {
            return connection.output.flush();
        }
    }
}

fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Any bytes but blanks and line ends, as memcached has it: memcaslap's keys are not text.
fn is_key(word: &[u8]) -> bool {
    word.len() <= KEY
}

impl Connection<'_> {
    fn say(&mut self, text: &str) -> io::Result<()> {
        self.output.write_all(text.as_bytes())
    }

    fn answer(&mut self, text: &str, quietly: bool) -> io::Result<Then> {
        if !quietly {
            self.say(text)?;
        }
        Ok(Then::Goes)
    }

    fn command(&mut self, line: &[u8]) -> io::Result<Then> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let mut words: Vec<&[u8]> = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
        let Some(name) = words.first().copied() else { return self.answer(ERROR, false) };
        let quietly = MAY_BE_QUIET.contains(&name) && words.len() > 1 && words.last() == Some(&&b"noreply"[..]);
        if quietly {
            words.pop();
        }
        match (name, &words[1..]) {
            (b"get" | b"gets", keys) if !keys.is_empty() => self.get(keys, name == b"gets"),
            (b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas", arguments) => {
                self.store(name, arguments, quietly)
            }
            (b"delete", [key]) | (b"delete", [key, b"0"]) if is_key(key) => {
                let found = self.shared.table.section(|table| table.delete(key));
                self.answer(if found { "DELETED\r\n" } else { "NOT_FOUND\r\n" }, quietly)
            }
            (b"incr" | b"decr", [key, change]) if is_key(key) => self.sum(key, change, name == b"incr", quietly),
            (b"flush_all", [] | [_]) => {
                self.shared.table.section(|table| table.clear());
                self.answer(OK, quietly)
            }
            (b"stats", []) => self.stats(),
            (b"version", []) => self.answer(concat!("VERSION ", env!("CARGO_PKG_VERSION"), "\r\n"), false),
            (b"verbosity", [_]) => self.answer(OK, quietly),
            (b"quit", []) => Ok(Then::Ends),
            (b"delete" | b"incr" | b"decr" | b"flush_all" | b"verbosity", _) => self.answer(BAD_FORMAT, quietly),
            _ => self.answer(ERROR, false),
        }
    }

    /// All keys in one section.
    fn get(&mut self, keys: &[&[u8]], with_version: bool) -> io::Result<Then> {
        if !keys.iter().all(|key| is_key(key)) {
            return self.answer(BAD_FORMAT, false);
        }
        let shared = self.shared;
        let found: Vec<Option<Item>> = match keys {
            [key] => vec![shared.table.section(|table| table.get(key))],
            keys => shared.table.section(|table| keys.iter().map(|key| table.get(key)).collect()),
        };
        for (key, item) in keys.iter().zip(found) {
            let Some(Item { flags, version, data }) = item else { continue };
            self.output.write_all(b"VALUE ")?;
            self.output.write_all(key)?;
            write!(self.output, " {flags} {}", data.len())?;
            if with_version {
                write!(self.output, " {version}")?;
            }
            self.output.write_all(b"\r\n")?;
            self.output.write_all(&data)?;
            self.output.write_all(b"\r\n")?;
        }
        self.answer("END\r\n", false)
    }

    fn store(&mut self, name: &[u8], arguments: &[&[u8]], quietly: bool) -> io::Result<Then> {
        let (head, version) = match (name, arguments) {
            (b"cas", [head @ .., version]) => (head, number(version).map(How::Cas)),
            (b"add", head) => (head, Some(How::Add)),
            (b"replace", head) => (head, Some(How::Replace)),
            (b"append", head) => (head, Some(How::Append)),
            (b"prepend", head) => (head, Some(How::Prepend)),
            (_, head) => (head, Some(How::Set)),
        };
        let [key, flags, expires, length] = head else { return self.answer(ERROR, false) };
        let (flags, expires, length) = (number::<u32>(flags), number::<i64>(expires), number::<usize>(length));
        let (Some(flags), Some(_), Some(length), Some(how), true) = (flags, expires, length, version, is_key(key))
        else {
            return self.answer(BAD_FORMAT, false);
        };
        if length > VALUE {
            io::copy(&mut (&mut self.input).take(length as u64 + 2), &mut io::sink())?;
            return self.answer(TOO_LARGE, quietly);
        }
        let mut data = vec![0; length + 2];
        self.input.read_exact(&mut data)?;
        if !data.ends_with(b"\r\n") {
            // What comes until the next line belongs to it.
            let mut rest = Vec::new();
            if data.last() != Some(&b'\n') {
                (&mut self.input).take(LINE).read_until(b'\n', &mut rest)?;
            }
            return self.answer(BAD_CHUNK, false);
        }
        data.truncate(length);
        // Memory is taken outside of the section.
        let (key, data): (Box<[u8]>, Arc<[u8]>) = ((*key).into(), data.into());
        let stored = self.shared.table.section(move |table| table.store(how, key, flags, data));
        let text = match stored {
            Outcome::TooLarge => TOO_LARGE,
            Outcome::Stored => "STORED\r\n",
            Outcome::NotStored => "NOT_STORED\r\n",
            Outcome::Exists => "EXISTS\r\n",
            Outcome::NotFound => "NOT_FOUND\r\n",
        };
        self.answer(text, quietly)
    }

    fn sum(&mut self, key: &[u8], change: &[u8], adds: bool, quietly: bool) -> io::Result<Then> {
        let Some(change) = number(change) else { return self.answer(BAD_DELTA, quietly) };
        match self.shared.table.section(|table| table.sum(key, change, adds)) {
            Sum::Is(sum) => self.answer(&format!("{sum}\r\n"), quietly),
            Sum::NotFound => self.answer("NOT_FOUND\r\n", quietly),
            Sum::NoNumber => self.answer(NO_NUMBER, quietly),
        }
    }

    fn stats(&mut self) -> io::Result<Then> {
        let counts = self.shared.table.section(|table| table.counts());
        let [connections, accepted] =
            [&self.shared.connections, &self.shared.accepted].map(|count| count.load(Relaxed));
        let numbers = [
            ("pid", u64::from(std::process::id())),
            ("curr_connections", connections),
            ("total_connections", accepted),
            ("curr_items", counts.items),
            ("bytes", counts.bytes),
            ("cmd_get", counts.gets),
            ("cmd_set", counts.sets),
            ("cmd_delete", counts.deletes),
            ("cmd_incr", counts.sums),
            ("get_hits", counts.hits),
            ("get_misses", counts.gets - counts.hits),
        ];
        let version = ("version", env!("CARGO_PKG_VERSION").to_owned());
        let lines = numbers.into_iter().map(|(name, number)| (name, number.to_string()));
        for (name, value) in lines.chain([version]).chain(self.shared.table.about_lock()) {
            write!(self.output, "STAT {name} {value}\r\n")?;
        }
        self.answer("END\r\n", false)
    }
}
