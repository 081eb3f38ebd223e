//! The locks whose holder sets waiters aside, step by step in one thread: exactly these queues after each hand-over.

mod cna;
mod mcscr;
mod qspin_cna;
mod random;
mod script;
