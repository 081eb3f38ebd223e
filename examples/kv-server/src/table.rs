//! The table, and the one lock that it is under.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use flashlock_delegation::adapt::Governor;
use flashlock_delegation::{Delegated, Options, Server};

/// What the lock is called, for the configuration: `FLASHLOCK_RCL=table=ordinary`.
pub(crate) const NAME: &str = "table";

/// A key's length, at most.
pub(crate) const KEY: usize = 250;
/// A value's length, at most.
pub(crate) const VALUE: usize = 1 << 20;

/// What stands for a key.
#[derive(Clone)]
pub(crate) struct Item {
    pub(crate) flags: u32,
    pub(crate) version: u64,
    pub(crate) data: Arc<[u8]>,
}

/// How a value is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Set,
    /// If there is none.
    Add,
    /// If there is one.
    Replace,
    /// Behind what is there.
    Append,
    /// Before what is there.
    Prepend,
    /// If it is this version.
    Cas(u64),
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Stored,
    NotStored,
    Exists,
    NotFound,
    TooLarge,
}

/// What became of a sum.
pub(crate) enum Sum {
    Is(u64),
    NotFound,
    NoNumber,
}

/// What was asked for, since the server was started.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) items: u64,
    pub(crate) bytes: u64,
    pub(crate) gets: u64,
    pub(crate) hits: u64,
    pub(crate) sets: u64,
    pub(crate) deletes: u64,
    pub(crate) sums: u64,
}

/// What is under the lock. Each method is a section.
#[derive(Default)]
pub(crate) struct Contents {
    items: HashMap<Box<[u8]>, Item>,
    version: u64,
    counts: Counts,
}

impl Contents {
    pub(crate) fn get(&mut self, key: &[u8]) -> Option<Item> {
        self.counts.gets += 1;
        let found = self.items.get(key).cloned();
        self.counts.hits += u64::from(found.is_some());
        found
    }

    pub(crate) fn store(&mut self, how: How, key: Box<[u8]>, mut flags: u32, mut data: Arc<[u8]>) -> Outcome {
        self.counts.sets += 1;
        let known = self.items.get(&key).map(|item| item.version);
        match (how, known) {
            (How::Add, Some(_)) | (How::Replace | How::Append | How::Prepend, None) => return Outcome::NotStored,
            (How::Cas(_), None) => return Outcome::NotFound,
            (How::Cas(asked), Some(version)) if asked != version => return Outcome::Exists,
            _ => {}
        }
        if let (How::Append | How::Prepend, Some(before)) = (how, self.items.get(&key)) {
            let parts = if how == How::Append { [&before.data, &data] } else { [&data, &before.data] };
            let joined = parts.map(|part| &part[..]).concat();
            if joined.len() > VALUE {
                return Outcome::TooLarge;
            }
            (flags, data) = (before.flags, joined.into());
        }
        self.version += 1;
        self.counts.bytes += data.len() as u64;
        if let Some(before) = self.items.insert(key, Item { flags, version: self.version, data }) {
            self.counts.bytes -= before.data.len() as u64;
        }
        Outcome::Stored
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> bool {
        self.counts.deletes += 1;
        let removed = self.items.remove(key);
        self.counts.bytes -= removed.as_ref().map_or(0, |item| item.data.len() as u64);
        removed.is_some()
    }

    /// Adds to a number, which wraps around; or takes off, not below 0. As memcached does.
    pub(crate) fn sum(&mut self, key: &[u8], change: u64, adds: bool) -> Sum {
        self.counts.sums += 1;
        let Some(item) = self.items.get_mut(key) else { return Sum::NotFound };
        let number = std::str::from_utf8(&item.data).ok().and_then(|text| text.trim_end().parse::<u64>().ok());
        let Some(number) = number else { return Sum::NoNumber };
        let sum = if adds { number.wrapping_add(change) } else { number.saturating_sub(change) };
        self.version += 1;
        let data: Arc<[u8]> = sum.to_string().into_bytes().into();
        self.counts.bytes = self.counts.bytes + data.len() as u64 - item.data.len() as u64;
        (item.data, item.version) = (data, self.version);
        Sum::Is(sum)
    }

    pub(crate) fn clear(&mut self) {
        self.items.clear();
        self.counts.bytes = 0;
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts { items: self.items.len() as u64, ..self.counts }
    }
}

/// Which lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ordinary,
    Delegated,
    Adaptive,
}

impl Kind {
    pub(crate) const ALL: [(&str, Self); 3] =
        [("ordinary", Self::Ordinary), ("delegated", Self::Delegated), ("adaptive", Self::Adaptive)];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }
}

/// The table under its lock.
pub(crate) struct Table {
    kind: Kind,
    contents: Delegated<Contents>,
    /// The delegated lock's.
    server: Option<Server>,
}

impl Table {
    pub(crate) fn new(kind: Kind) -> io::Result<Self> {
        let (server, contents) = match kind {
            Kind::Ordinary => (None, Delegated::new(Contents::default())),
            Kind::Delegated => {
                let server = Server::open(Options::default())?;
                let contents = Delegated::on(&server, Contents::default());
                (Some(server), contents)
            }
            Kind::Adaptive => (None, Delegated::adaptive(NAME, Contents::default())?),
        };
        Ok(Self { kind, contents, server })
    }

    /// Does something with the contents, alone.
    pub(crate) fn section<R: Send>(&self, section: impl FnOnce(&mut Contents) -> R + Send) -> R {
        self.contents.run(section)
    }

    /// What is known of the lock, as lines of `stats`.
    pub(crate) fn about_lock(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("lock", self.kind.name().to_owned())];
        let server = self.contents.server();
        lines.push(("lock_server", server.map_or("none".to_owned(), |number| number.to_string())));
        if let Some(server) = &self.server {
            let statistics = server.statistics();
            lines.push(("server_sections", statistics.sections.to_string()));
            lines.push(("server_use_rate", format!("{:.3}", statistics.use_rate())));
        }
        if self.contents.is_adaptive()
            && let Ok(governor) = Governor::of_process()
            && let Some(report) = governor.reports().into_iter().find(|report| report.lock == NAME)
        {
            lines.push(("lock_sections", report.sections.to_string()));
            lines.push(("lock_moves", report.moves.to_string()));
            let share = report.last.share.map_or("unknown".to_owned(), |share| format!("{share:.3}"));
            lines.push(("lock_share", share));
        }
        lines
    }
}
