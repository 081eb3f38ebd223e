//! A run's sections as a timeline, in the Trace Event Format that Perfetto and the Firefox Profiler open: each NUMA node is a
//! process, each thread a track; a section that followed one of the same lock on another node says so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use flashlock_sim::Description;

use super::ground::Section;

/// The file's text.
pub(super) fn render(sections: &[Section], machine: &Description) -> String {
    let mut out = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    let nodes: BTreeSet<u32> = sections.iter().map(|section| section.node).collect();
    for node in &nodes {
        // The machine's name may be anything.
        let name = serde_json::Value::from(format!("NUMA node {node} of {}", machine.name));
        let _ = writeln!(out, r#"{{"ph":"M","name":"process_name","pid":{node},"tid":0,"args":{{"name":{name}}}}},"#);
    }
    let tracks: BTreeSet<(u32, u32)> = sections.iter().map(|section| (section.node, section.thread)).collect();
    for (node, thread) in tracks {
        let _ = writeln!(
            out,
            r#"{{"ph":"M","name":"thread_name","pid":{node},"tid":{thread},"args":{{"name":"thread {thread}"}}}},"#
        );
    }
    let mut last = BTreeMap::new();
    for section in sections {
        let Section { lock, thread, cpu, node, begin, end } = *section;
        let name = if last.insert(lock, node).is_some_and(|last| last != node) {
            "section, from another node"
        } else {
            "section"
        };
        // Microseconds, to the nanosecond.
        let (at, long) = (begin as f64 / 1e3, end.saturating_sub(begin) as f64 / 1e3);
        let _ = writeln!(
            out,
            r#"{{"ph":"X","name":"{name}","cat":"lock","pid":{node},"tid":{thread},"ts":{at:.3},"dur":{long:.3},"args":{{"lock":{lock},"cpu":{cpu}}}}},"#
        );
    }
    let body = out.trim_end_matches(['\n', ',']).len();
    out.truncate(body);
    out + "\n]}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_is_json_and_has_all_sections() {
        let mut machine = Description::find("2x18x2").unwrap();
        machine.name = r#"a "quoted" name"#.to_owned();
        let section = |lock, thread, node, begin| Section { lock, thread, cpu: 3, node, begin, end: begin + 50 };
        let all = [section(0, 0, 0, 1000), section(0, 1, 1, 1100), section(0, 1, 1, 1200), section(1, 0, 0, 1300)];
        let text = render(&all, &machine);
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
        let events = parsed["traceEvents"].as_array().unwrap();
        let sections: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!((events.len(), sections.len()), (8, 4));
        let names = sections.iter().map(|section| section["name"].as_str().unwrap());
        let other_node: Vec<bool> = names.map(|name| name == "section, from another node").collect();
        assert_eq!(other_node, [false, true, false, false], "the last one is another lock's first");
        assert_eq!((&sections[1]["ts"], &sections[1]["dur"]), (&1.1.into(), &0.05.into()));
        let empty: serde_json::Value = serde_json::from_str(&render(&[], &machine)).unwrap();
        assert!(empty["traceEvents"].as_array().unwrap().is_empty());
    }
}
