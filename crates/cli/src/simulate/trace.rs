//! A run's sections as a timeline, in the Trace Event Format that Perfetto and the Firefox Profiler open. Each NUMA
//! node is a process, and each thread a track. A track has the thread's waits, which say how it waited, and its
//! sections, both as complete events (`X`). A wait that is not over at the end is shown up to there. A flow (`s` to
//! `f`) is a hand-off: from the end of a section to the beginning of the next section under the same lock, if its
//! thread was waiting. Readers are in their sections together: the last reader to leave hands the lock to a writer, and
//! a writer hands it to each waiting reader.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write as _};

use flashlock_measure::simulated::{Entry, Open, Section, Timeline};
use flashlock_sim::Description;

/// The file's text.
pub(super) fn render(timeline: &Timeline, machine: &Description) -> String {
    let Timeline { sections, open } = timeline;
    let places = sections.iter().map(|section| (section.node, section.thread));
    let tracks: BTreeSet<(u32, u32)> = places.chain(open.iter().map(|wait| (wait.node, wait.thread))).collect();
    let nodes: BTreeSet<u32> = tracks.iter().map(|&(node, _)| node).collect();
    // The machine's name may contain any characters.
    let node = |node: u32| serde_json::Value::from(format!("NUMA node {node} of {}", machine.name));
    let mut events: Vec<String> = Vec::new();
    events.extend(nodes.iter().map(|&number| named("process_name", number, 0, node(number))));
    events.extend(tracks.iter().map(|&(node, thread)| {
        named("thread_name", node, thread, serde_json::Value::from(format!("thread {thread}")))
    }));
    let mut locks: BTreeMap<u32, Before> = BTreeMap::new();
    for section in sections {
        events.extend(wait(section));
        let before = locks.entry(section.lock).or_default().replaced_by(section);
        events.push(complete(section, before.as_ref()));
        if let Some(before) = before.filter(|before| section.asked < before.end && before.end <= section.begin) {
            events.extend(hand_over(&before, section));
        }
    }
    events.extend(open.iter().map(unfinished));
    format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}\n]}}\n", events.join(",\n"))
}

/// The sections of a lock that may have handed it over.
#[derive(Default)]
struct Before {
    /// The last section to end.
    any: Option<Section>,
    /// The latest exclusive section.
    alone: Option<Section>,
}

impl Before {
    /// Returns the section that had to end before this one began, and records this one.
    fn replaced_by(&mut self, section: &Section) -> Option<Section> {
        let is_later = |before: &Section| before.end > section.end;
        let last = Some(self.any.filter(is_later).unwrap_or(*section));
        match section.entry {
            Entry::Alone => {
                self.alone = Some(*section);
                std::mem::replace(&mut self.any, last)
            }
            Entry::Reader => {
                self.any = last;
                self.alone
            }
        }
    }
}

fn named(what: &str, pid: u32, tid: u32, name: impl Display) -> String {
    format!(r#"{{"ph":"M","name":"{what}","pid":{pid},"tid":{tid},"args":{{"name":{name}}}}}"#)
}

/// The time in microseconds, with three decimals.
fn us(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

/// The start of any event on this section's track.
fn on_track(section: &Section, phase: char, name: &str, category: &str, at: u64) -> String {
    event((section.node, section.thread), phase, name, category, at)
}

fn event((node, thread): (u32, u32), phase: char, name: &str, category: &str, at: u64) -> String {
    let at = us(at);
    format!(r#"{{"ph":"{phase}","name":"{name}","cat":"{category}","pid":{node},"tid":{thread},"ts":{at}"#)
}

/// The wait before a section, if there was one.
fn wait(section: &Section) -> Option<String> {
    let Section { lock, asked, polled, parked, begin, .. } = *section;
    let name = match (polled, parked) {
        (0, 0) => return None,
        (_, 0) => "wait, spun",
        (0, _) => "wait, parked",
        _ => "wait, spun and parked",
    };
    let (mut text, long) = (on_track(section, 'X', name, "wait", asked), us(begin.saturating_sub(asked)));
    let (polled, parked) = (us(polled), us(parked));
    let _ = write!(
        text,
        r#","dur":{long},"args":{{"lock":{lock},"node":{},"spun us":{polled},"parked us":{parked}}}}}"#,
        section.node
    );
    Some(text)
}

/// A wait that is not over.
fn unfinished(wait: &Open) -> String {
    let Open { asked, end, lock, thread, node } = *wait;
    let (begin, long) = (event((node, thread), 'X', "wait, not over", "wait", asked), us(end.saturating_sub(asked)));
    format!(r#"{begin},"dur":{long},"args":{{"lock":{lock},"node":{node}}}}}"#)
}

fn complete(section: &Section, before: Option<&Section>) -> String {
    let Section { lock, cpu, node, begin, end, .. } = *section;
    let name = match section.entry {
        Entry::Reader => "section, reading",
        Entry::Alone if before.is_some_and(|before| before.node != node) => "section, from another node",
        Entry::Alone => "section",
    };
    let mut text = on_track(section, 'X', name, "section", begin);
    let long = us(end.saturating_sub(begin));
    let _ = write!(text, r#","dur":{long},"args":{{"lock":{lock},"node":{node},"cpu":{cpu}}}}}"#);
    text
}

/// The two ends of a flow. An end belongs to the slice that encloses its time: the last nanosecond of one section, and
/// the first of the next.
fn hand_over(from: &Section, to: &Section) -> [String; 2] {
    let name = if from.node == to.node { "hand-off" } else { "hand-off to another node" };
    // A thread's sections begin at different times, so this is unique.
    let id = format!(r#","id":"{}-{}-{}""#, to.lock, to.thread, to.begin);
    let nodes = format!(r#","args":{{"from node":{},"to node":{}}}}}"#, from.node, to.node);
    let leave = on_track(from, 's', name, "hand-off", from.end.saturating_sub(1).max(from.begin));
    let arrive = on_track(to, 'f', name, "hand-off", to.begin);
    [format!("{leave}{id}{nodes}"), format!(r#"{arrive}{id},"bp":"e"{nodes}"#)]
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn section(lock: u32, thread: u32, node: u32, asked: u64, begin: u64) -> Section {
        Section { asked, polled: 0, parked: 0, lock, thread, entry: Entry::Alone, cpu: 3, node, begin, end: begin + 50 }
    }

    fn reading(thread: u32, node: u32, asked: u64, begin: u64, end: u64) -> Section {
        Section { entry: Entry::Reader, end, ..section(0, thread, node, asked, begin) }
    }

    fn events(sections: &[Section]) -> Vec<Value> {
        all_events(&Timeline { sections: sections.to_vec(), open: Vec::new() })
    }

    fn all_events(timeline: &Timeline) -> Vec<Value> {
        let mut machine = Description::find("2x18x2").unwrap();
        machine.name = r#"a "quoted" name"#.to_owned();
        let parsed: Value = serde_json::from_str(&render(timeline, &machine)).unwrap();
        parsed["traceEvents"].as_array().unwrap().clone()
    }

    fn of_phase<'a>(events: &'a [Value], phase: &str) -> Vec<&'a Value> {
        events.iter().filter(|event| event["ph"] == phase).collect()
    }

    #[test]
    fn a_timeline_is_json_and_has_all_sections() {
        let free = |lock, thread, node, begin| section(lock, thread, node, begin, begin);
        let all = events(&[free(0, 0, 0, 1000), free(0, 1, 1, 1100), free(0, 1, 1, 1200), free(1, 0, 0, 1300)]);
        let sections = of_phase(&all, "X");
        assert_eq!((all.len(), sections.len()), (8, 4), "two nodes, two tracks; nobody waited");
        let names = sections.iter().map(|section| section["name"].as_str().unwrap());
        let other_node: Vec<bool> = names.map(|name| name == "section, from another node").collect();
        assert_eq!(other_node, [false, true, false, false], "the last one is another lock's first");
        assert_eq!((&sections[1]["ts"], &sections[1]["dur"]), (&1.1.into(), &0.05.into()));
        assert!(events(&[]).is_empty());
    }

    #[test]
    fn waits_say_how_and_come_before_their_section() {
        for (polled, parked, name) in
            [(30, 0, "wait, spun"), (0, 40, "wait, parked"), (10, 20, "wait, spun and parked")]
        {
            let all = events(&[Section { polled, parked, ..section(0, 4, 1, 1000, 1060) }]);
            let [wait, section] = of_phase(&all, "X")[..] else { panic!("{all:?}") };
            assert_eq!((&wait["name"], &wait["ts"], &wait["dur"]), (&name.into(), &1.0.into(), &0.06.into()));
            assert_eq!(wait["args"]["parked us"].as_f64().unwrap(), parked as f64 / 1e3);
            assert_eq!((&section["ts"], &section["tid"], &section["pid"]), (&1.06.into(), &wait["tid"], &wait["pid"]));
        }
    }

    #[test]
    fn who_still_waits_is_there() {
        let open = vec![Open { asked: 900, end: 2000, lock: 0, thread: 7, node: 1 }];
        let all = all_events(&Timeline { sections: vec![section(0, 4, 0, 1000, 1000)], open });
        let [_, wait] = of_phase(&all, "X")[..] else { panic!("{all:?}") };
        assert_eq!((&wait["name"], &wait["ts"], &wait["dur"]), (&"wait, not over".into(), &0.9.into(), &1.1.into()));
        assert_eq!((&wait["pid"], &wait["tid"], of_phase(&all, "M").len()), (&1.into(), &7.into(), 4));
    }

    #[test]
    fn the_last_reader_hands_over_to_a_writer_and_a_writer_to_all_readers() {
        let sections = [
            section(0, 0, 0, 1000, 1000), // to 1050
            reading(1, 1, 1010, 1060, 1300),
            reading(2, 0, 1020, 1060, 1200),
            reading(3, 0, 1110, 1110, 1150),
            section(0, 0, 0, 1100, 1310),
        ];
        let all = events(&sections);
        let names: Vec<_> = of_phase(&all, "X").into_iter().map(|event| event["name"].as_str().unwrap()).collect();
        let read = "section, reading";
        assert_eq!(names, ["section", read, read, read, "section, from another node"]);
        let ends = |phase: &str, key: &str| -> Vec<u64> {
            of_phase(&all, phase).into_iter().map(|event| event[key].as_u64().unwrap_or_default()).collect()
        };
        assert_eq!((ends("s", "tid"), ends("f", "tid")), (vec![0, 0, 1], vec![1, 2, 0]));
        let ids: BTreeSet<_> = of_phase(&all, "s").into_iter().map(|event| event["id"].to_string()).collect();
        assert_eq!(ids.len(), 3);
    }

    #[test]
    fn a_hand_over_goes_from_a_section_to_a_thread_that_waited_for_its_lock() {
        // The third thread came when the lock was free; the fourth had waited, but for another lock.
        let sections = [
            section(0, 0, 0, 900, 1000),
            section(0, 1, 1, 1010, 1060),
            section(0, 0, 0, 1200, 1200),
            section(1, 2, 1, 0, 1230),
        ];
        let all = events(&sections);
        let ([leave], [arrive]) = (&of_phase(&all, "s")[..], &of_phase(&all, "f")[..]) else { panic!("{all:?}") };
        assert_eq!((&leave["id"], &leave["cat"], &leave["name"]), (&arrive["id"], &arrive["cat"], &arrive["name"]));
        assert_eq!((&leave["ts"], &leave["pid"], &leave["tid"]), (&1.049.into(), &0.into(), &0.into()));
        assert_eq!((&arrive["ts"], &arrive["pid"], &arrive["tid"]), (&1.06.into(), &1.into(), &1.into()));
        assert_eq!((&arrive["bp"], &arrive["name"]), (&"e".into(), &"hand-off to another node".into()));
        assert_eq!((&arrive["args"]["from node"], &arrive["args"]["to node"]), (&0.into(), &1.into()));
    }
}
