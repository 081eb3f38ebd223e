//! Tests of parsing: what is accepted, what is refused, and with which message.

use super::*;
use flashlock_locks::catalogue::{OPTIONS, OptionId, STANDALONE};

fn parsed(text: &str) -> Result<Choice, BadChoice<'_>> {
    parse(text, Tunables::DEFAULT)
}

#[test]
fn good_choices() {
    assert_eq!(parsed("").unwrap().lock, DEFAULT);
    let choice = parsed("mcs:wait=park").unwrap();
    assert_eq!((choice.lock.info().name, choice.lock.info().waits[choice.wait]), ("mcs", "park"));
    let choice = parsed("shfl:bound=50,shuffles=0,ahead=3").unwrap().tunables;
    assert_eq!((choice.bound_us, choice.max_shuffles, choice.wake_ahead), (50, 0, 3));
}

#[test]
fn options_of_the_two_list_locks() {
    let choice = parsed("cna:threshold=9,countdown=1,reduction=256,refresh=1000").unwrap().tunables;
    assert_eq!((choice.threshold, choice.countdown, choice.reduction, choice.refresh), (9, 1, 256, 1000));
    assert_eq!(parsed("mcscr:eldest=5").unwrap().tunables.eldest, 5);
    let say = |text| parsed(text).unwrap_err().to_string();
    assert!(say("cna:countdown=lots").contains("must be 0 to 1 "));
    assert!(say("cna:threshold=0").contains("must be 1 to "));
    assert!(say("mcscr:eldest=1000000001").contains("must be 1 to "));
}

#[test]
fn readers_writer_locks_have_a_catalogue_of_their_own() {
    let rw = |text| parse::<RwId>(text, Tunables { wake_ahead: 3, ..Tunables::DEFAULT });
    assert_eq!(rw("").unwrap().lock, RW_DEFAULT);
    for lock in RW_LOCKS {
        assert_eq!(rw(lock.name).unwrap().lock, lock.id);
    }
    let choice = rw("shfl-rw:wait=park,bound=7").unwrap();
    assert_eq!((choice.lock.info().waits[choice.wait], choice.tunables.bound_us), ("park", 7));
    assert_eq!(choice.tunables.wake_ahead, 3, "as it was");
    let say = |text| rw(text).unwrap_err().to_string();
    assert_eq!(say("none"), "unknown readers-writer lock 'none'; known locks: futex-rw cst-rw shfl-rw");
    assert_eq!(say("mcs"), "'mcs' is a lock for mutexes; use it with FLASHLOCK=mcs");
    assert_eq!(say("futex-rw:bound=5"), "lock futex-rw has no option 'bound'; its options: wait");
    assert!(say("shfl-rw:bound=6,wait=sit").contains("has no wait='sit'; choose one of: stp spin park"));
}

#[test]
fn bad_choices_say_what_is_right() {
    let say = |text| parsed(text).unwrap_err().to_string();
    let names: Vec<_> = LOCKS.iter().map(|lock| lock.name).collect();
    assert_eq!(say("none"), format!("unknown lock 'none'; known locks: {}", names.join(" ")));
    assert_eq!(say("cst-rw:bound=5"), "'cst-rw' is a readers-writer lock; use it with FLASHLOCK_RW=cst-rw");
    assert_eq!(
        say("shfl:colour=red"),
        "lock shfl has no option 'colour'; its options: wait bound shuffles ahead policy cond sem"
    );
    let policies = OptionId::Policy.info().words.join(" ");
    assert_eq!(say("shfl:policy=fair"), format!("option policy cannot be 'fair'; choose one of: {policies}"));
    assert!(say("shfl:policy=0").contains("cannot be '0'"));
    assert_eq!(say("tas:wait=park"), "lock tas has only wait=stp");
    assert_eq!(say("shfl:bound=soon"), "option bound must be 0 to 10000000 (microseconds), not 'soon'");
    assert!(say("shfl:bound").contains(", not ''"));
}

/// As the preload library says it, which also accepts `glibc`.
#[test]
fn bad_choices_say_what_may_have_been_meant() {
    let say = |text| {
        let mut said = String::new();
        parsed(text).unwrap_err().explain(&[GLIBC], &mut |part| said.push_str(part));
        said
    };
    assert!(say("mcx").starts_with("unknown lock 'mcx' (did you mean 'mcs'?); known locks: tas "), "{}", say("mcx"));
    assert!(say("none").ends_with(" flash glibc"), "{}", say("none"));
    assert!(say("glib").contains("(did you mean 'glibc'?)"), "{}", say("glib"));
    assert_eq!(say("glibc:wait=park"), "glibc's locks have no options");
    for (text, meant) in [("shfl:buond=5", "bound"), ("mcs:wait=prak", "park"), ("shfl:policy=nmua", "numa")] {
        assert!(say(text).contains(&format!(" (did you mean '{meant}'?); ")), "{text}: {}", say(text));
    }
}

#[test]
fn what_this_cpu_cannot_do_is_refused_here_alone() {
    for lock in LOCKS {
        let text = format!("{}:wait=umwait", lock.name);
        let queues = lock.waits.contains(&"spin") && lock.waits.contains(&"stp");
        assert_eq!(parsed(&text).is_ok(), queues, "{text}");
        let why = format!("lock {} cannot use wait=umwait: this CPU lacks the instruction (WAITPKG)", lock.name);
        match parsed(&text).and_then(Choice::here) {
            Ok(_) => assert!(queues && umwait::is_there(), "{text}"),
            Err(error) if queues => assert!(!umwait::is_there() && error.to_string().starts_with(&why), "{error}"),
            Err(error) => {
                let said = error.to_string();
                assert!(said.contains("has no wait='umwait'") || said.contains("has only wait="), "{said}");
            }
        }
    }
}

#[test]
fn locks_that_are_for_no_program_are_refused_as_such() {
    for lock in STANDALONE {
        let said = parsed(lock.name).unwrap_err().to_string();
        assert_eq!(said, format!("lock {} cannot replace the locks of a program: {}", lock.name, lock.why_standalone));
        assert_eq!(parse::<StandaloneId>(lock.name, Tunables::DEFAULT).unwrap().lock, lock.id);
    }
    let standalone = |text| parse::<StandaloneId>(text, Tunables::DEFAULT);
    let choice = standalone("cc-synch:wait=park").unwrap();
    assert_eq!(choice.lock.info().waits[choice.wait], "park");
    let bad = standalone("cc-synch:bound=1").unwrap_err();
    assert_eq!(bad.to_string(), "lock cc-synch has no option 'bound'; its options: wait");
    assert!(standalone("mcs").is_err() && standalone("").is_err());
}

#[test]
fn a_lock_takes_the_options_of_its_row_and_no_others() {
    for lock in LOCKS {
        for option in OPTIONS {
            for value in [option.least, option.most] {
                let written = option.word(value).map_or_else(|| value.to_string(), str::to_owned);
                let text = format!("{}:{}={written}", lock.name, option.name);
                match parsed(&text) {
                    Ok(choice) => assert_eq!((option.get)(&choice.tunables), value, "{text}"),
                    Err(error) => assert_eq!(error, BadChoice::Option(lock.id.into(), option.name), "{text}"),
                }
                assert_eq!(parsed(&text).is_ok(), lock.options.contains(&option.id), "{text}");
            }
        }
    }
    assert_eq!(
        parsed("tas:bound=5").unwrap_err().to_string(),
        "lock tas has no option 'bound'; its options: wait cond sem"
    );
}

#[test]
fn every_lock_takes_the_orders() {
    for lock in LOCKS {
        for order in ORDERS {
            let text = format!("{}:{}=lifo:1/50", lock.name, order.name);
            let tunables = parsed(&text).unwrap().tunables;
            assert_eq!((order.get)(&tunables), Order::lifo(50), "{text}");
            let others = ORDERS.iter().filter(|other| other.name != order.name);
            assert!(others.map(|other| (other.get)(&tunables)).all(|other| other == Order::FIFO), "{text}");
        }
    }
    let tunables = parsed("shfl:cond=lifo:1/1000,bound=7,sem=lifo").unwrap().tunables;
    assert_eq!((tunables.cond_order, tunables.sem_order, tunables.bound_us), (Order::lifo(1000), Order::lifo(1000), 7));
    assert!(parsed("tas:cond=stack").unwrap_err().to_string().contains("cannot be 'stack'; choose fifo, lifo"));
}

#[test]
fn values_outside_their_range_are_refused() {
    for option in OPTIONS {
        let mutex = LOCKS.iter().find(|lock| lock.options.contains(&option.id)).map(|lock| lock.name);
        let rw = RW_LOCKS.iter().find(|lock| lock.options.contains(&option.id)).map(|lock| lock.name);
        assert!(mutex.or(rw).is_some(), "no lock takes {}", option.name);
        for value in [u64::from(option.most) + 1, u64::from(u32::MAX) + 1] {
            let of = |name| format!("{name}:{}={value}", option.name);
            if let Some(text) = mutex.map(of) {
                assert!(matches!(parsed(&text), Err(BadChoice::Value(found, _)) if found == option.id), "{text}");
            }
            if let Some(text) = rw.map(of) {
                let refused = parse::<RwId>(&text, Tunables::DEFAULT).err();
                assert!(matches!(refused, Some(BadChoice::Value(found, _)) if found == option.id), "{text}");
            }
        }
    }
}

#[test]
fn numbers_are_written() {
    for number in [0, 7, 10, 60_000_000, u32::MAX] {
        assert_eq!(decimal(number, &mut [0; 10]), number.to_string());
    }
}

#[test]
fn lists_of_locks_with_options() {
    assert_eq!(
        split_list("shfl:bound=100,ahead=2,mcs,tas:wait=stp"),
        ["shfl:bound=100,ahead=2", "mcs", "tas:wait=stp"]
    );
    assert_eq!(split_list("mcs,wait=park"), ["mcs", "wait=park"]);
    assert_eq!(
        split_list("shfl:bound=1,cond=lifo:1/1000,mcs:sem=lifo:0,tas"),
        ["shfl:bound=1,cond=lifo:1/1000", "mcs:sem=lifo:0", "tas"]
    );
    assert_eq!(split_list(""), [""]);
}

#[test]
fn topologies() {
    assert_eq!(parse_topology("2x18x2"), Some([2, 18, 2]));
    for wrong in ["", "2", "2x18", "2x18x2x1", "0x1x1", "axbxc", "2x18x99999"] {
        assert_eq!(parse_topology(wrong), None, "{wrong}");
    }
}
