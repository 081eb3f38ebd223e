//! The tables of workloads and of their parameters.

use std::fmt::Write as _;

use flashlock_workloads::catalogue::{Parameter, WORKLOADS, WorkloadInfo};

/// The document that shows them.
pub(super) const PAGE: &str = "docs/simulate.md";

/// Both tables, as Markdown.
pub(super) fn tables() -> String {
    let mut text = "| name | what a thread does | source | ms |\n|---|---|---|--:|\n".to_owned();
    for work in WORKLOADS {
        let WorkloadInfo { name, does, paper, section, millis, .. } = work;
        let _ = writeln!(text, "| `{name}` | {does} | {paper}, {section} | {millis} |");
    }
    text += "\n| parameter | workload | what it is | unit | from | to | default | in the paper |\n\
             |---|---|---|---|--:|--:|--:|---|\n";
    let rows = WORKLOADS.iter().flat_map(|work| work.parameters.iter().map(move |parameter| (work, parameter)));
    for (work, Parameter { name, unit, least, most, default, meaning, paper, section, .. }) in rows {
        let of = work.name;
        let _ = writeln!(
            text,
            "| `--{name}` | `{of}` | {meaning} | {unit} | {least} | {most} | {default} | {paper} ({section}) |"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_and_parameter_has_a_row() {
        let text = tables();
        for work in WORKLOADS {
            assert!(text.contains(&format!("\n| `{}` | ", work.name)), "{text}");
            for parameter in work.parameters {
                assert!(text.contains(&format!("\n| `--{}` | `{}` | ", parameter.name, work.name)), "{text}");
            }
        }
        let columns = |line: &str| line.matches('|').count();
        assert!(text.lines().all(|line| [0, 5, 9].contains(&columns(line))), "{text}");
    }
}
