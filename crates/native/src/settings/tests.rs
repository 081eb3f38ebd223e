//! Tests of parsing: what is accepted, what is refused, and with which message.

use super::*;
use flashlock_locks::catalogue::{OPTIONS, STANDALONE};

#[test]
fn good_choices() {
    assert_eq!(parse("").unwrap().lock, DEFAULT);
    let choice = parse("mcs:wait=park").unwrap();
    assert_eq!((choice.lock.info().name, choice.lock.info().waits[choice.wait]), ("mcs", "park"));
    let choice = parse("shfl:bound=50,shuffles=0,ahead=3").unwrap().tunables;
    assert_eq!((choice.bound_us, choice.max_shuffles, choice.wake_ahead), (50, 0, 3));
}

#[test]
fn options_of_the_two_list_locks() {
    let choice = parse("cna:threshold=9,countdown=1,reduction=256,refresh=1000").unwrap().tunables;
    assert_eq!((choice.threshold, choice.countdown, choice.reduction, choice.refresh), (9, 1, 256, 1000));
    assert_eq!(parse("mcscr:eldest=5").unwrap().tunables.eldest, 5);
    let say = |text| parse(text).unwrap_err().to_string();
    assert!(say("cna:countdown=lots").contains("must be 0 to 1 "));
    assert!(say("cna:threshold=0").contains("must be 1 to "));
    assert!(say("mcscr:eldest=1000000001").contains("must be 1 to "));
}

#[test]
fn readers_writer_locks_are_chosen_apart() {
    let mut tunables = Tunables::DEFAULT;
    assert_eq!(parse_rw("", &mut tunables).unwrap().lock, RW_DEFAULT);
    for lock in RW_LOCKS {
        assert_eq!(parse_rw(lock.name, &mut tunables).unwrap().lock, lock.id);
    }
    let choice = parse_rw("shfl-rw:wait=park,bound=7", &mut tunables).unwrap();
    assert_eq!((choice.lock.info().waits[choice.wait], tunables.bound_us), ("park", 7));
    let mut say = |text| parse_rw(text, &mut tunables).unwrap_err().to_string();
    assert_eq!(say("mcs"), "unknown readers-writer lock 'mcs'; known locks: futex-rw cst-rw shfl-rw");
    assert_eq!(say("futex-rw:bound=5"), "lock futex-rw has no option 'bound'; its options: wait");
    assert!(say("shfl-rw:bound=6,wait=sit").contains("has no wait='sit'; choose one of: stp spin park"));
    assert_eq!(tunables.bound_us, 7, "a bad choice changes nothing");
}

#[test]
fn bad_choices_say_what_is_right() {
    let say = |text| parse(text).unwrap_err().to_string();
    let names: Vec<_> = LOCKS.iter().map(|lock| lock.name).collect();
    assert_eq!(say("mcz"), format!("unknown lock 'mcz'; known locks: {}", names.join(" ")));
    assert_eq!(
        say("shfl:colour=red"),
        "lock shfl has no option 'colour'; its options: wait bound shuffles ahead policy cond sem"
    );
    assert_eq!(
        say("shfl:policy=fair"),
        "option policy cannot be 'fair'; choose one of: numa llc levels ahead cr priority none"
    );
    assert!(say("shfl:policy=0").contains("cannot be '0'"));
    assert!(say("tas:wait=park").contains("choose one of: stp"));
    assert_eq!(say("shfl:bound=soon"), "option bound must be 0 to 10000000 (microseconds), not 'soon'");
    assert!(say("shfl:bound").contains(", not ''"));
}

#[test]
fn what_this_cpu_cannot_do_is_refused_here_alone() {
    for lock in LOCKS {
        let text = format!("{}:wait=umwait", lock.name);
        let queues = lock.waits.contains(&"spin") && lock.waits.contains(&"stp");
        assert_eq!(parse(&text).is_ok(), queues, "{text}");
        let why = format!("lock {} cannot use wait=umwait: this CPU lacks the instruction (WAITPKG)", lock.name);
        match parse_here(&text) {
            Ok(_) => assert!(queues && umwait::is_there(), "{text}"),
            Err(error) if queues => assert!(!umwait::is_there() && error.to_string().starts_with(&why), "{error}"),
            Err(error) => assert!(error.to_string().contains("has no wait='umwait'"), "{error}"),
        }
    }
}

#[test]
fn locks_that_are_for_no_program_are_refused_as_such() {
    for lock in STANDALONE {
        let said = parse(lock.name).unwrap_err().to_string();
        assert_eq!(said, format!("lock {} cannot replace the locks of a program: {}", lock.name, lock.apart));
        assert_eq!(parse_standalone(lock.name).unwrap().unwrap().lock, lock.id);
    }
    let choice = parse_standalone("cc-synch:wait=park").unwrap().unwrap();
    assert_eq!(choice.lock.info().waits[choice.wait], "park");
    let bad = parse_standalone("cc-synch:bound=1").unwrap().unwrap_err();
    assert_eq!(bad.to_string(), "lock cc-synch has no option 'bound'; its options: wait");
    assert!(parse_standalone("mcs").is_none());
}

#[test]
fn a_lock_takes_the_options_of_its_row_and_no_others() {
    for lock in LOCKS {
        for option in OPTIONS {
            for value in [option.least, option.most] {
                let written = option.word(value).map_or_else(|| value.to_string(), str::to_owned);
                let text = format!("{}:{}={written}", lock.name, option.name);
                match parse(&text) {
                    Ok(choice) => assert_eq!((option.get)(&choice.tunables), value, "{text}"),
                    Err(error) => assert_eq!(error, BadChoice::Option(lock.id.into(), option.name), "{text}"),
                }
                assert_eq!(parse(&text).is_ok(), lock.options.contains(&option.id), "{text}");
            }
        }
    }
    assert_eq!(
        parse("tas:bound=5").unwrap_err().to_string(),
        "lock tas has no option 'bound'; its options: wait cond sem"
    );
}

#[test]
fn every_lock_takes_the_orders() {
    for lock in LOCKS {
        for order in ORDERS {
            let text = format!("{}:{}=lifo:1/50", lock.name, order.name);
            let tunables = parse(&text).unwrap().tunables;
            assert_eq!((order.get)(&tunables), Order::lifo(50), "{text}");
            let others = ORDERS.iter().filter(|other| other.name != order.name);
            assert!(others.map(|other| (other.get)(&tunables)).all(|other| other == Order::FIFO), "{text}");
        }
    }
    let tunables = parse("shfl:cond=lifo:1/1000,bound=7,sem=lifo").unwrap().tunables;
    assert_eq!((tunables.cond_order, tunables.sem_order, tunables.bound_us), (Order::lifo(1000), Order::lifo(1000), 7));
    assert!(parse("tas:cond=stack").unwrap_err().to_string().contains("cannot be 'stack'; choose fifo, lifo"));
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
                assert!(matches!(parse(&text), Err(BadChoice::Value(found, _)) if found == option.id), "{text}");
            }
            if let Some(text) = rw.map(of) {
                let parsed = parse_rw(&text, &mut Tunables::DEFAULT.clone()).err();
                assert!(matches!(parsed, Some(BadChoice::Value(found, _)) if found == option.id), "{text}");
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
