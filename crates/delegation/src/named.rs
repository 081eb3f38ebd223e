//! # Servers and locks by name
//!
//! A named server is opened when it is first needed, and stays open until the process ends.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use flashlock_locks::parts::wait::WaitPolicy;

use crate::adapt::{Governor, Thresholds};
use crate::config::{Config, Place};
use crate::process::PerProcess;
use crate::raw::Raw;
use crate::server::Server;

/// What a lock is, unless the configuration says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The thread that asks for a section runs it.
    Ordinary,
    /// A server runs its sections: the one that the [configuration](crate::config) names, or else the server
    /// [`DEFAULT`].
    Delegated,
    /// It is ordinary, and goes to a server when that pays.
    Adaptive,
}

/// The server of delegated locks that the configuration does not place.
pub const DEFAULT: &str = "default";

/// Servers by name.
type Open = BTreeMap<String, &'static Server>;

/// Those of this process.
fn open() -> MutexGuard<'static, Open> {
    static OPEN: PerProcess<Mutex<Open>> = PerProcess::new();
    OPEN.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// The configuration, read once in a process.
fn config() -> io::Result<&'static Config> {
    static CONFIG: PerProcess<OnceLock<Result<Config, (io::ErrorKind, String)>>> = PerProcess::new();
    let read = || Config::from_env().map_err(|error| (error.kind(), error.to_string()));
    CONFIG.get().get_or_init(read).as_ref().map_err(|(kind, text)| io::Error::new(*kind, text.clone()))
}

/// The server of that name, which is opened if it is not yet open. (A forked child opens its own.)
///
/// # Errors
/// As [`Server::open`]; and what is wrong with the configuration.
pub fn server(name: &str) -> io::Result<&'static Server> {
    let config = config()?;
    let mut open = open();
    if let Some(server) = open.get(name).filter(|server| server.is_open()) {
        return Ok(server);
    }
    let server: &'static Server = Box::leak(Box::new(Server::open(config.options(name))?));
    open.insert(name.to_owned(), server);
    Ok(server)
}

/// Whether [`server`] has opened this server.
pub fn is_named(server: &Server) -> bool {
    open().values().any(|named| std::ptr::eq(*named, server))
}

/// The configuration's thresholds of this machine.
pub(crate) fn thresholds() -> io::Result<Thresholds> {
    Ok(config()?.thresholds())
}

/// A lock of that name, if it has one. It is of that kind, unless the configuration places it elsewhere.
///
/// # Errors
/// As [`server`]; the system's error if it refuses the governor's thread.
pub fn lock<W: WaitPolicy>(kind: Kind, name: Option<&str>) -> io::Result<Raw<W>> {
    let said = match name {
        Some(name) => config()?.place(name),
        None => None,
    };
    let number = match (said, kind) {
        (Some(Place::Server(name)), _) => server(name)?.number(),
        (Some(Place::Ordinary), _) | (None, Kind::Ordinary) => 0,
        (Some(Place::Adaptive), _) | (None, Kind::Adaptive) => {
            return Ok(Raw::adaptive(Governor::of_process()?, name));
        }
        (None, Kind::Delegated) => server(DEFAULT)?.number(),
    };
    Ok(Raw::new(number))
}
