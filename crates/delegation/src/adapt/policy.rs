//! # Which lock is to be where
//!
//! The policy decides which locks go to a server, move to another one, or come back. It is a function of measured
//! numbers. It reads no clock and no lock, so that it can be tested without either. The [governor](super::governor)
//! measures, asks the policy once a window, and does what it says.
//!
//! ## Rules, in this order
//! 1. **No CPU to spare.** If there are more servers than CPUs can spare, the one with the least to do is given up: its
//!    locks become ordinary.
//! 2. **The way back.** A lock comes back when its server's use rate, over all its scans, is below
//!    [`Thresholds::back`]. If there are several locks on that server, the one with the fewest sections comes back. A
//!    lock also comes back if it has hardly any share of its server's sections, or if it was faster as an ordinary
//!    lock.
//! 3. **False serialization.** If more than [`SPLIT`] of a server's busy scans run sections of several locks, one of
//!    these locks moves to another server, if that leaves both servers with less to do, or if there is a CPU to spare
//!    for a new one.
//! 4. **The way to a server.** An ordinary lock goes to a server when the share of time that its threads spend in its
//!    sections is [`Thresholds::go`] or more, and a server would run its sections faster ([`Thresholds::gain`]).
//!
//! Each condition must hold in [`CONFIRM`] windows, one after the other. A lock that has come back rests for [`REST`]
//! windows, and for twice as many each further time. At most one lock goes or moves in a window, so that its effect is
//! measured before the next one goes.

use std::collections::BTreeMap;

use super::thresholds::Thresholds;

/// A reason must hold in so many windows, one after the other.
pub const CONFIRM: u32 = 3;
/// After a lock has moved, it is left alone for so many windows: threads find out, caches are filled.
pub const SETTLE: u32 = 2;
/// For so many further windows it is compared with the ordinary lock that it was.
pub const TRIAL: u32 = 10;
/// In these windows it must do at least this part of what the ordinary lock did.
pub const SLOWER: f64 = 0.95;
/// After a lock has come back, it stays ordinary for so many windows at least …
pub const REST: u32 = 20;
/// … and for twice as many each time that it comes back. This doubling happens at most so many times.
pub const RESTS: u32 = 6;
/// Fewer sections in a window than this say nothing.
pub const FEWEST: u64 = 1_000;
/// What a server must gain: it must run the sections so many times as fast.
pub const GAIN: f64 = 1.1;
/// A server that is so busy takes no further lock.
pub const FULL: f64 = 0.5;
/// Of the scans that run sections, this share may run those of several locks.
pub const SPLIT: f64 = 0.2;
/// A lock with less than this share of its server's sections does not need the server.
pub const LEAST: f64 = 1.0 / 128.0;
/// A server is kept even if the CPUs can spare this much less than one: otherwise it would come and go.
pub const SLACK: f64 = 0.25;

/// What was measured of a lock in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lock {
    /// Which one it is.
    pub id: u32,
    /// The place of the server that runs its sections; `None` if it is ordinary.
    pub at: Option<u32>,
    /// Whether it stays where it is, whatever is measured.
    pub pinned: bool,
    /// Sections.
    pub sections: u64,
    /// For an ordinary lock: the share of their time that threads spent in its sections, to acquire it, inside, and to
    /// release it. `None` if nothing is known.
    pub share: Option<f64>,
    /// How long sections took inside, in ns, if the same thread had the lock before, …
    pub warm: Option<f64>,
    /// … and if another thread had it: then the cache lines that they touch had to travel.
    pub cold: Option<f64>,
}

/// What a server has counted in a window. See [`Statistics`](crate::Statistics).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// Scans.
    pub scans: u64,
    /// Of these, those that ran sections.
    pub busy: u64,
    /// Of these, those that ran sections of several locks.
    pub mixed: u64,
    /// Sections.
    pub sections: u64,
    /// The clients at each busy scan, added up.
    pub clients: u64,
}

impl Server {
    /// The use rate over all scans: 1 if each client always waits, and low if the server mostly finds nothing.
    pub fn heat(&self) -> f64 {
        let use_rate = self.sections as f64 / self.clients.max(1) as f64;
        use_rate * self.busy as f64 / self.scans.max(1) as f64
    }

    /// The share of busy scans that run sections of several locks.
    pub fn false_serialization(&self) -> f64 {
        self.mixed as f64 / self.busy.max(1) as f64
    }
}

/// What was measured in a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// How long it was, in seconds.
    pub seconds: f64,
    /// All adaptive locks.
    pub locks: Vec<Lock>,
    /// By place.
    pub servers: Vec<Server>,
    /// CPUs that the process may use.
    pub cpus: f64,
    /// CPUs that its threads used, without servicing threads.
    pub busy: f64,
}

/// Why a lock moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its threads spend much of their time in its sections.
    Hot,
    /// Its server has little to do, or little to do for this lock.
    Cool,
    /// It ran more sections as an ordinary lock.
    Slower,
    /// Sections of other locks waited for its sections, or its sections for theirs.
    FalseSerialization,
    /// No CPU can be spared for its server.
    NoCpu,
}

impl Why {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Cool => "cool",
            Self::Slower => "slower than an ordinary lock",
            Self::FalseSerialization => "false serialization",
            Self::NoCpu => "no CPU to spare",
        }
    }
}

/// A lock to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The lock.
    pub lock: u32,
    /// The place of the server that it is on; `None`: ordinary.
    pub from: Option<u32>,
    /// Where it is to be.
    pub to: Option<u32>,
    /// Why.
    pub why: Why,
}

/// What is remembered of a lock.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    /// Windows in which a reason to move it held, one after the other.
    hot: u32,
    cool: u32,
    slow: u32,
    /// Windows since it has moved to a server.
    age: u32,
    /// Windows for which it stays ordinary.
    rest: u32,
    /// How often it came back.
    returns: u32,
    /// Sections per second of the ordinary lock.
    before: f64,
}

impl Past {
    /// It came back.
    fn returned(&mut self) {
        let rest = REST << self.returns.min(RESTS);
        *self = Self { rest, returns: self.returns + 1, ..Self::default() };
    }

    /// It has gone to a server.
    fn went(&mut self, before: f64) {
        *self = Self { returns: self.returns, before, ..Self::default() };
    }

    fn settled(&self) -> bool {
        self.age > SETTLE
    }
}

/// `count` + 1 while it `holds`, else 0. Returns whether it has held for long enough.
fn confirmed(count: &mut u32, holds: bool) -> bool {
    *count = if holds { *count + 1 } else { 0 };
    *count >= CONFIRM
}

/// Decides.
#[derive(Clone, Debug)]
pub struct Policy {
    thresholds: Thresholds,
    past: BTreeMap<u32, Past>,
    /// Windows, one after the other, in which there were too many servers. `mixed`: those in which each server was busy
    /// with several locks.
    crowded: u32,
    mixed: BTreeMap<u32, u32>,
}

/// What a window's decisions are made from, and where the locks are after the decisions so far.
struct Round<'a> {
    seen: &'a Seen,
    at: BTreeMap<u32, Option<u32>>,
    moves: Vec<Move>,
}

impl<'a> Round<'a> {
    fn new(seen: &'a Seen) -> Self {
        Self { seen, at: seen.locks.iter().map(|lock| (lock.id, lock.at)).collect(), moves: Vec::new() }
    }

    fn server(&self, place: u32) -> Server {
        self.seen.servers.get(place as usize).copied().unwrap_or_default()
    }

    /// The places that have locks.
    fn active(&self) -> Vec<u32> {
        let mut places: Vec<u32> = self.at.values().copied().flatten().collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    fn locks_at(&self, place: u32) -> impl Iterator<Item = &'a Lock> + '_ {
        self.seen.locks.iter().filter(move |lock| self.at[&lock.id] == Some(place))
    }

    /// A place without locks, if the CPUs can spare one for it.
    fn new_place(&self) -> Option<u32> {
        let active = self.active();
        let room = active.len() < spared(self.seen, 0.0);
        room.then(|| (0..).find(|place| !active.contains(place)).expect("there are more numbers than servers"))
    }

    fn go(&mut self, lock: u32, to: Option<u32>, why: Why) {
        let from = self.at.insert(lock, to).expect("a lock that was seen");
        self.moves.push(Move { lock, from, to, why });
    }
}

/// How many servers the CPUs can spare.
pub fn spared(seen: &Seen, slack: f64) -> usize {
    (seen.cpus - seen.busy + slack).max(0.0) as usize
}

impl Policy {
    /// A policy that has seen nothing.
    pub fn new(thresholds: Thresholds) -> Self {
        Self { thresholds, past: BTreeMap::new(), crowded: 0, mixed: BTreeMap::new() }
    }

    /// The thresholds by which it decides.
    pub fn thresholds(&self) -> &Thresholds {
        &self.thresholds
    }

    /// What is to be done after this window.
    pub fn decide(&mut self, seen: &Seen) -> Vec<Move> {
        self.past.retain(|id, _| seen.locks.iter().any(|lock| lock.id == *id));
        let mut round = Round::new(seen);
        self.spare_cpus(&mut round);
        for lock in &seen.locks {
            match lock.at {
                Some(place) => self.way_back(&mut round, lock, place),
                None => self.rest(lock),
            }
        }
        self.separate(&mut round);
        self.way_there(&mut round);
        round.moves
    }

    fn past(&mut self, lock: u32) -> &mut Past {
        self.past.entry(lock).or_default()
    }

    /// Rule 1.
    fn spare_cpus(&mut self, round: &mut Round<'_>) {
        let active = round.active();
        if !confirmed(&mut self.crowded, active.len() > spared(round.seen, SLACK)) {
            return;
        }
        self.crowded = 0;
        // A server whose locks may all leave, if there is one. A server with a pinned lock stays.
        let may_go = |place: &u32| round.locks_at(*place).all(|lock| !lock.pinned);
        let least = active.into_iter().filter(may_go).min_by_key(|place| round.server(*place).sections);
        let locks: Vec<u32> = least.into_iter().flat_map(|place| round.locks_at(place)).map(|lock| lock.id).collect();
        for lock in locks {
            round.go(lock, None, Why::NoCpu);
            self.past(lock).returned();
        }
    }

    /// Rule 2, for one lock.
    fn way_back(&mut self, round: &mut Round<'_>, lock: &Lock, place: u32) {
        if round.at[&lock.id].is_none() {
            return;
        }
        let (server, back) = (round.server(place), self.thresholds.back);
        let fewest = round.locks_at(place).map(|lock| (lock.sections, lock.id)).min();
        let is_coldest = fewest == Some((lock.sections, lock.id));
        let alone = round.locks_at(place).count() == 1;
        let hardly = !alone && (lock.sections as f64) < LEAST * server.sections as f64;
        let rate = lock.sections as f64 / round.seen.seconds.max(f64::MIN_POSITIVE);
        let past = self.past(lock.id);
        past.age += 1;
        if !past.settled() || lock.pinned {
            return;
        }
        let cool = confirmed(&mut past.cool, server.heat() < back && is_coldest || hardly);
        let on_trial = past.age <= SETTLE + TRIAL;
        let slow = confirmed(&mut past.slow, on_trial && rate < SLOWER * past.before);
        let why = if cool {
            Why::Cool
        } else if slow {
            Why::Slower
        } else {
            return;
        };
        past.returned();
        round.go(lock.id, None, why);
    }

    /// An ordinary lock is one window older.
    fn rest(&mut self, lock: &Lock) {
        let thresholds = self.thresholds;
        let past = self.past(lock.id);
        past.rest = past.rest.saturating_sub(1);
        let is_hot = !lock.pinned && past.rest == 0 && thresholds.pays(lock);
        past.hot = if is_hot { past.hot + 1 } else { 0 };
    }

    /// Rule 3, for one lock at most.
    fn separate(&mut self, round: &mut Round<'_>) {
        let back = self.thresholds.back;
        let mut goes = None;
        for place in round.active() {
            let server = round.server(place);
            let mixed = server.false_serialization() > SPLIT && server.heat() >= back;
            let several = round.locks_at(place).count() > 1;
            let count = self.mixed.entry(place).or_default();
            if confirmed(count, mixed && several) && goes.is_none() {
                goes = self.leaves(round, place);
            }
        }
        if let Some((lock, to)) = goes {
            round.go(lock, Some(to), Why::FalseSerialization);
            self.mixed.clear();
            let past = self.past(lock);
            past.went(past.before);
            past.age = 0;
        }
    }

    /// The lock that leaves a server, and where it goes: the second busiest one, or, if that may not leave, the next
    /// busy one, and the busiest one last.
    fn leaves(&self, round: &Round<'_>, place: u32) -> Option<(u32, u32)> {
        let mut locks: Vec<&Lock> = round.locks_at(place).collect();
        locks.sort_by_key(|lock| std::cmp::Reverse(lock.sections));
        let settled = |lock: &&&Lock| !lock.pinned && self.past.get(&lock.id).is_none_or(Past::settled);
        let lock = locks[1..].iter().find(settled).or_else(|| locks[..1].iter().find(settled))?;
        let load = round.server(place).sections;
        let other = round.active().into_iter().filter(|other| *other != place);
        let least = other.min_by_key(|other| round.server(*other).sections);
        // The server with the least to do, if even with this lock that is less than here.
        let joins = least.filter(|other| round.server(*other).sections + lock.sections < load);
        round.new_place().or(joins).map(|to| (lock.id, to))
    }

    /// Rule 4, for one lock at most: the one with the greatest share.
    fn way_there(&mut self, round: &mut Round<'_>) {
        if round.moves.iter().any(|done| done.to.is_some()) || self.crowded > 0 {
            return;
        }
        let ready = |lock: &&Lock| lock.at.is_none() && self.past.get(&lock.id).is_some_and(|past| past.hot >= CONFIRM);
        let share = |lock: &Lock| lock.share.unwrap_or(0.0);
        let hottest = round.seen.locks.iter().filter(ready).max_by(|a, b| share(a).total_cmp(&share(b)));
        let Some(lock) = hottest else { return };
        let joins = || {
            let has_room = |place: &u32| round.server(*place).heat() < FULL;
            round.active().into_iter().filter(has_room).min_by_key(|place| round.server(*place).sections)
        };
        let may_join = round.active().len() <= spared(round.seen, SLACK);
        if let Some(to) = round.new_place().or_else(|| joins().filter(|_| may_join)) {
            round.go(lock.id, Some(to), Why::Hot);
            let before = lock.sections as f64 / round.seen.seconds.max(f64::MIN_POSITIVE);
            self.past(lock.id).went(before);
        }
    }
}
