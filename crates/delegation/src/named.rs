//! # Servers and locks by name
//!
//! A named server is opened when it is first needed, and stays open until the process ends.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::config::{Config, Place};
use crate::server::Server;

/// What a program makes a lock, where nobody says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Who asks for a section runs it.
    Ordinary,
    /// A server runs its sections: the one that the [configuration](crate::config) names, or else that called
    /// [`DEFAULT`].
    Delegated,
}

/// The server of delegated locks of which nothing else is said.
pub const DEFAULT: &str = "default";

static OPEN: Mutex<BTreeMap<String, &'static Server>> = Mutex::new(BTreeMap::new());

/// What the variables say, read once.
fn config() -> io::Result<&'static Config> {
    static CONFIG: OnceLock<Result<Config, (io::ErrorKind, String)>> = OnceLock::new();
    let read = || Config::from_env().map_err(|error| (error.kind(), error.to_string()));
    CONFIG.get_or_init(read).as_ref().map_err(|(kind, text)| io::Error::new(*kind, text.clone()))
}

/// The server of that name, which is opened if it is not yet. (A forked child opens its own.)
///
/// # Errors
/// As [`Server::open`]; and what is wrong with the configuration.
pub fn server(name: &str) -> io::Result<&'static Server> {
    let config = config()?;
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = open.get(name).filter(|server| server.is_open()) {
        return Ok(server);
    }
    let server: &'static Server = Box::leak(Box::new(Server::open(config.options(name))?));
    open.insert(name.to_owned(), server);
    Ok(server)
}

/// Whether [`server`] has opened it.
pub fn is_named(server: &Server) -> bool {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.values().any(|named| std::ptr::eq(*named, server))
}

/// Where a lock of that name, if it has one, begins that its program makes so.
///
/// # Errors
/// As [`server`].
pub fn place(kind: Kind, name: Option<&str>) -> io::Result<Option<&'static Server>> {
    let said = match name {
        Some(name) => config()?.place(name),
        None => None,
    };
    match (said, kind) {
        (Some(Place::Server(name)), _) => server(name).map(Some),
        (Some(Place::Ordinary), _) | (None, Kind::Ordinary) => Ok(None),
        (None, Kind::Delegated) => server(DEFAULT).map(Some),
    }
}
