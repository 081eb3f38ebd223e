use super::*;
use crate::results::{Point, Run};

/// A result with the speeds of each lock with 1, 8 and 64 threads. If judged, it has four rounds with little or
/// much noise.
fn results(speeds: &[(&str, [f64; 3])], is_judged: bool) -> Results {
    let cells = ["1", "8", "64"];
    let point = |lock: &str, cell: usize, speed: f64| Point {
        group: "G".into(),
        cell: cells[cell].into(),
        lock: lock.into(),
        runs: (0..4)
            .map(|round| Run {
                round,
                values: [("ops_per_us".into(), speed * (1.0 + f64::from(round * round % 5) / 1e3))].into(),
            })
            .collect(),
        ..Point::default()
    };
    let mut results = Results {
        title: "Title".into(),
        metrics: vec![Metric { name: "ops_per_us".into(), title: "Operations per µs".into(), better: Better::More }],
        groups: vec![Group {
            title: "G".into(),
            axis: "threads".into(),
            cells: cells.map(str::to_owned).to_vec(),
            merit: "ops_per_us".into(),
        }],
        locks: speeds.iter().map(|(lock, _)| (*lock).to_owned()).collect(),
        points: (0..3).flat_map(|cell| speeds.iter().map(move |(l, of)| point(l, cell, of[cell]))).collect(),
        ..Results::default()
    };
    results.derive();
    if is_judged {
        results.judge();
    }
    results
}

#[test]
fn whoever_wins_is_named() {
    let ours = [("glibc", [10.0; 3]), ("flash", [10.0, 20.0, 30.0]), ("tbb", [10.0, 15.0, 20.0])];
    assert_eq!(headline(&results(&ours, false)), "flash is fastest: 1.82 times as fast as glibc on average");
    let theirs = [("glibc", [10.0; 3]), ("flash", [10.0, 12.0, 12.0]), ("tbb", [10.0, 15.0, 20.0])];
    let told = "tbb is fastest: 1.44 times as fast as glibc on average; flash: 1.13";
    assert_eq!([false, true].map(|is_judged| headline(&results(&theirs, is_judged))), [told, told]);
    let nobody = [("glibc", [10.0; 3]), ("flash", [9.0; 3])];
    assert_eq!(headline(&results(&nobody, false)), "No lock is faster than glibc on average; flash: 0.900");
}

#[test]
fn a_gain_below_five_percent_is_none() {
    let mut close = vec![("glibc", [10.0; 3]), ("flash", [10.1; 3]), ("tas", [10.4; 3]), ("tbb", [10.2; 3])];
    assert_eq!(headline(&results(&close, true)), "All locks are within 5 % of glibc on average");
    close.push(("mcs", [5.0; 3]));
    assert_eq!(headline(&results(&close, true)), "Most locks are within 5 % of glibc on average; mcs: 0.500");
    close.extend([("cna", [4.0; 3]), ("clh", [3.0; 3])]);
    assert_eq!(headline(&results(&close, true)), "No lock is 5 % faster than glibc on average; mcs, cna and clh lose");
}

#[test]
fn losses_are_told_beside_gains() {
    let some = [("glibc", [10.0; 3]), ("flash", [20.0; 3]), ("shfl", [9.0; 3]), ("mcs", [8.0; 3])];
    assert_eq!(
        headline(&results(&some, true)),
        "flash is fastest: 2.00 times as fast as glibc on average; shfl: 0.900, mcs: 0.800"
    );
    let nobody = [("glibc", [10.0; 3]), ("flash", [10.0; 3]), ("shfl", [7.3; 3])];
    assert_eq!(headline(&results(&nobody, true)), "No lock is faster than glibc on average; shfl: 0.730");
    let crossing = [("glibc", [10.0; 3]), ("flash", [20.0, 14.0, 8.6]), ("tbb", [20.0; 3])];
    assert_eq!(
        headline(&results(&crossing, true)),
        "tbb is fastest: 2.00 times as fast as glibc on average; flash: 1.34, but 0.860 with 64 threads"
    );
}

#[test]
fn an_average_does_not_hide_who_is_better_with_many_threads() {
    let crossing = [("glibc", [10.0; 3]), ("flash", [20.0, 30.0, 12.0]), ("shfl", [10.0, 10.0, 20.0])];
    let told = headline(&results(&crossing, false));
    assert!(told.ends_with("on average; shfl is faster with 64 threads"), "{told}");
}

#[test]
fn a_lock_that_may_be_better_by_chance_is_not_named() {
    let speeds = [("glibc", [10.0; 3]), ("flash", [20.0, 30.0, 8.3])];
    let mut noisy = results(&speeds, true);
    assert!(headline(&noisy).ends_with("on average; glibc is faster with 64 threads"), "{}", headline(&noisy));
    let last = noisy.points.iter_mut().find(|point| point.cell == "64" && point.lock == "flash").unwrap();
    for (run, speed) in last.runs.iter_mut().zip([8.3, 6.0, 8.2, 11.0]) {
        run.values.insert("ops_per_us".into(), speed);
    }
    noisy.derive();
    noisy.judge();
    assert!(headline(&noisy).ends_with("on average"), "{}", headline(&noisy));
}

#[test]
fn what_collapsed_is_no_gain() {
    let baseline = [("glibc", [10.0, 0.02, 0.01]), ("flash", [20.0, 13.8, 6.9])];
    let told = headline(&results(&baseline, true));
    assert_eq!(told, "flash is fastest: 2.00 times as fast as glibc on average; glibc collapsed with 8 and 64 threads");
    let everywhere = [("glibc", [0.01, 0.02, 0.01]), ("flash", [20.0, 13.78, 6.9])];
    assert_eq!(headline(&results(&everywhere, true)), "glibc collapsed: 0.0100, flash 13.8");
    let others = [("glibc", [10.0; 3]), ("mcs", [10.0, 0.1, 0.1]), ("cna", [10.0, 0.1, 0.1])];
    assert_eq!(
        headline(&results(&others, false)),
        "No lock is faster than glibc on average; mcs: 0.0464; mcs and cna collapsed"
    );
}

#[test]
fn noise_is_no_difference() {
    let mut noisy = results(&[("glibc", [10.0; 3]), ("flash", [10.0; 3])], false);
    for (place, point) in noisy.points.iter_mut().enumerate() {
        for run in &mut point.runs {
            let wild = f64::from(run.round * 7 % 4) - f64::from(run.round * 5 % 3);
            run.values.insert("ops_per_us".into(), 10.0 + if place % 2 == 0 { wild } else { -wild });
        }
    }
    noisy.derive();
    noisy.judge();
    assert_eq!(headline(&noisy), "No lock differs from glibc beyond the noise on average");
}

#[test]
fn of_several_groups_it_is_what_the_default_lock_does() {
    let mut both = results(&[("glibc", [10.0; 3]), ("flash", [20.0; 3]), ("tbb", [30.0; 3])], false);
    let mut second = both.groups[0].clone();
    second.title = "H".into();
    let points: Vec<Point> = both.points.iter().map(|point| Point { group: "H".into(), ..point.clone() }).collect();
    both.points.extend(points);
    both.groups.push(second);
    assert_eq!(headline(&both), "flash is 2.00 times as fast as glibc on average (G), 2.00 times (H)");
    let groups = ["I", "J", "K"].map(|title| Group { title: title.into(), ..both.groups[0].clone() });
    for (group, speed) in groups.into_iter().zip([5.0, 20.1, 20.0]) {
        let rest = both.points.iter().filter(|point| point.group == "G").cloned().map(|mut point| {
            let is_own = point.lock == "flash";
            for run in &mut point.runs {
                run.values.values_mut().filter(|_| is_own).for_each(|value| *value *= speed / 40.0);
            }
            Point { group: group.title.clone(), ..point }
        });
        let rest: Vec<Point> = rest.collect();
        both.points.extend(rest);
        both.groups.push(group);
    }
    both.derive();
    assert_eq!(headline(&both), "flash is faster in 2 of 5 cases, slower in 1 and no different in 2");
    both.points.clear();
    assert_eq!(headline(&both), "Title");
}

/// Several results of one group each, as one result.
fn together(all: &[(&str, Results)]) -> Results {
    let mut both = all[0].1.clone();
    (both.groups, both.points) = (Vec::new(), Vec::new());
    for (title, one) in all {
        both.groups.push(Group { title: (*title).to_owned(), ..one.groups[0].clone() });
        let points = one.points.iter().map(|point| Point { group: (*title).to_owned(), ..point.clone() });
        both.points.extend(points);
    }
    both.derive();
    both.judge();
    both
}

#[test]
fn several_groups_make_a_sentence() {
    let of = |flash| results(&[("glibc", [10.0; 3]), ("flash", flash)], true);
    let (good, mixed) = (of([20.0; 3]), of([20.0, 14.0, 8.6]));
    let same = of([10.0; 3]);
    let fallen = results(&[("glibc", [0.01; 3]), ("flash", [20.0; 3])], true);
    let told = |all: &[(&str, &Results)]| {
        headline(&together(&all.iter().map(|(title, one)| (*title, (*one).clone())).collect::<Vec<_>>()))
    };
    assert_eq!(
        told(&[("No work outside", &good), ("2 µs outside", &same)]),
        "flash is 2.00 times as fast as glibc on average (no work outside), no different (2 µs outside)"
    );
    assert_eq!(
        told(&[("SQLite here", &same), ("Redis", &good)]),
        "flash is no different from glibc on average (SQLite here), 2.00 times as fast (Redis)"
    );
    assert_eq!(
        told(&[("A lot", &mixed), ("B", &good), ("C", &fallen)]),
        "flash is 1.34 times as fast as glibc on average, but 0.860 with 64 threads (a lot); 2.00 times (B); \
         glibc collapsed (C)"
    );
    assert_eq!(told(&[("A", &fallen), ("B", &fallen)]), "glibc collapsed (A); glibc collapsed (B)");
}

#[test]
fn long_lists_are_cut() {
    assert_eq!(listed(&["a"]), "a");
    assert_eq!(listed(&["a", "b", "c", "d"]), "a, b, c and d");
    assert_eq!(listed(&["a", "b", "c", "d", "e", "f"]), "a, b, c, d and 2 more");
}
