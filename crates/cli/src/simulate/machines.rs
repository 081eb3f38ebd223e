//! The machines that are part of the command.

use flashlock_report::table::{self, paragraph};
use flashlock_sim::Description;
use serde::Serialize;

use crate::failure::Failure;
use crate::json;

#[derive(Serialize)]
struct Row {
    name: String,
    title: String,
    packages: u32,
    numa_nodes: u32,
    cores: u32,
    cpus: u32,
    source: String,
}

fn all() -> impl Iterator<Item = Row> {
    Description::names().map(|name| {
        let machine = Description::find(name).expect("the machines that are part of the command are sound");
        Row {
            packages: machine.topology.packages,
            numa_nodes: machine.nodes(),
            cores: machine.cores(),
            cpus: machine.cpus(),
            name: machine.name,
            title: machine.title,
            source: machine.source,
        }
    })
}

/// The list as text.
pub(super) fn text(width: u16) -> String {
    let mut table = table::new(["machine", "CPUs", "NUMA nodes", "what it is"], width);
    table::numbers(&mut table, 1..=2);
    table::keep_whole(&mut table, 0);
    for Row { name, title, numa_nodes, cpus, .. } in all() {
        table.add_row([name, cpus.to_string(), numa_nodes.to_string(), title]);
    }
    let more = "Another one: a file, as flashlock simulate --show-machine prints it and flashlock calibrate makes it.";
    format!("{}\n{}", table::text(&table), paragraph(more, width))
}

/// The list as a JSON array of objects.
pub(super) fn json() -> Result<String, Failure> {
    json::text(&all().collect::<Vec<Row>>())
}
