//! The counters of each object, in the schema and as text.

use serde::{Deserialize, Serialize};

/// A lock or semaphore, or several that cannot be told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// `mutex`, `rwlock`, `semaphore` or `spinlock`; `null` for objects of several kinds.
    pub kind: Option<String>,
    /// The variable that it is, or is part of. `null` if it is on the heap or on a stack, or if the program's file has
    /// no symbols.
    pub symbol: Option<String>,
    /// The program or library that the variable belongs to.
    pub module: Option<String>,
    /// Its address, in hexadecimal. `null` for several objects: those that the same place in the program used first, or
    /// all others.
    pub address: Option<String>,
    /// The number of its process. `null` for a variable that several processes have, each its own.
    pub process: Option<u32>,
    /// The place in the program that used it first.
    pub place: Option<Place>,
    /// How often it was acquired.
    pub acquisitions: u64,
    /// How often it was found held, or without a permit.
    pub contended: u64,
    /// The total time that threads waited for it.
    pub waited_ns: u64,
    /// The longest wait of a single thread.
    pub longest_ns: u64,
}

/// A call in a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// What the call did.
    pub reason: Reason,
    /// The function that made the call; `null` if there are no symbols.
    pub function: Option<String>,
    /// Source file and line, if there is debug information.
    pub source: Option<String>,
    /// The program or library.
    pub module: String,
    /// The call's return address within that file's address space, in hexadecimal: the argument of `addr2line -e`.
    pub offset: String,
}

/// What a call did with an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It initialised it.
    Initialised,
    /// It was the first one to use it.
    #[default]
    FirstUsed,
}

impl Object {
    /// Whether waiting for it may mean waiting for work, instead of for other threads to get out of the way.
    pub(super) fn is_semaphore(&self) -> bool {
        self.kind.as_deref() == Some("semaphore")
    }

    /// Its name in text.
    pub(super) fn title(&self) -> String {
        let place = |place: &Option<Place>| place.as_ref().map(|place| format!(", {place}")).unwrap_or_default();
        let noun = match self.kind.as_deref() {
            Some("mutex") => "mutex",
            Some("rwlock") => "readers-writer lock",
            Some("semaphore") => "semaphore",
            Some("spinlock") => "spinlock",
            _ => "lock",
        };
        match (&self.symbol, &self.address) {
            (Some(symbol), _) => {
                let noun = if matches!(noun, "mutex" | "semaphore") { String::new() } else { format!(", a {noun}") };
                format!("{symbol} in {}{noun}", file_name(self.module.as_deref().unwrap_or("?")))
            }
            (None, Some(address)) => format!("{noun} at {address}{}", place(&self.place)),
            (None, None) if self.place.is_some() => format!("many, each a {noun}{}", place(&self.place)),
            (None, None) if self.kind.is_some() => format!("many, each a {noun} (too many to list)"),
            (None, None) => "all others (too many to list)".into(),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reason = match self.reason {
            Reason::Initialised => "initialised",
            Reason::FirstUsed => "first used",
        };
        let module = file_name(&self.module);
        match (&self.function, &self.source) {
            (Some(function), Some(source)) => write!(f, "{reason} by {function} ({}) in {module}", file_name(source)),
            (Some(function), None) => write!(f, "{reason} by {function} in {module}"),
            (None, Some(source)) => write!(f, "{reason} at {} in {module}", file_name(source)),
            (None, None) => write!(f, "{reason} at {} in {module}", self.offset),
        }
    }
}

/// The last part of a path.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_called_by_the_best_name_there_is() {
        let place = Place {
            reason: Reason::Initialised,
            function: Some("pool_new".into()),
            source: Some("/src/pool.c:12".into()),
            module: "/usr/lib/libpool.so".into(),
            offset: "0x1234".into(),
        };
        let mut object = Object { address: Some("0x7f00".into()), place: Some(place.clone()), ..Object::default() };
        assert_eq!(object.title(), "lock at 0x7f00, initialised by pool_new (pool.c:12) in libpool.so");
        object.place = Some(Place { function: None, source: None, reason: Reason::FirstUsed, ..place.clone() });
        assert_eq!(object.title(), "lock at 0x7f00, first used at 0x1234 in libpool.so");
        object.address = None;
        object.kind = Some("rwlock".into());
        assert_eq!(object.title(), "many, each a readers-writer lock, first used at 0x1234 in libpool.so");
        (object.symbol, object.module) = (Some("big_lock".into()), Some("/bin/server".into()));
        assert_eq!(object.title(), "big_lock in server, a readers-writer lock");
        object.kind = Some("mutex".into());
        assert_eq!(object.title(), "big_lock in server");
        assert_eq!(
            Object { symbol: None, place: None, address: Some("0x7f00".into()), ..object }.title(),
            "mutex at 0x7f00"
        );
        assert!(Object::default().title().contains("too many"));
    }
}
