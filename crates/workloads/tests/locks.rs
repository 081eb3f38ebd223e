//! The workload under every lock of the catalogue, on this computer: generic code that compiles for all of them, and that tells
//! a lock that does not exclude.

use std::thread;

use flashlock_locks::raw::RawLock;
use flashlock_native::machine::Native;
use flashlock_workloads::key_value::Mix;
use flashlock_workloads::{KeyValue, Lock, Raw, Workload};

const THREADS: u32 = 2;
const EACH: u64 = 4000;

fn outcome<L: Lock>(lock: L) -> Result<(), &'static str> {
    let mut shared: KeyValue<L> = KeyValue::new(lock, Mix { external: 20, ..Mix::PAPER }, 11);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let shared = &shared;
            scope.spawn(move || {
                let mut client = shared.client(11, number);
                (0..EACH).for_each(|_| shared.operate(&mut client));
            });
        }
    });
    shared.check(u64::from(THREADS) * EACH)
}

fn works<L: RawLock<Native>>(name: &str)
where
    Raw<Native, L>: Lock,
{
    assert_eq!(outcome(Raw::<Native, L>::new()), Ok(()), "{name}");
}

macro_rules! every_lock_works {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        #[test]
        fn every_lock_keeps_the_map_in_order() {
            $($(works::<$type>(concat!($name, " ", stringify!($wait)));)+)*
        }
    };
}
flashlock_locks::for_each_lock!(every_lock_works);
