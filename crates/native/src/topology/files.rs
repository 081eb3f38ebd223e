//! # The machine as `/sys` and `/proc` describe it
//!
//! | what | where |
//! |---|---|
//! | CPUs | `/sys/devices/system/cpu/{online,offline}` |
//! | package, die, core, siblings | `/sys/devices/system/cpu/cpuN/topology/` |
//! | caches | `/sys/devices/system/cpu/cpuN/cache/indexM/` |
//! | NUMA nodes, distances, memory | `/sys/devices/system/node/nodeN/` |
//! | model, whether virtual | `/proc/cpuinfo` |
//! | kernel | `/proc/sys/kernel/osrelease` |
//! | usable CPUs | `Cpus_allowed_list` in `/proc/self/status` |

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::{Cache, Cpu, Node, Topology};

/// The machine whose `/sys` and `/proc` are under `root`.
pub(super) fn read(root: &Path) -> Topology {
    let system = root.join("sys/devices/system");
    let info = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let nodes = read_nodes(&system.join("node"));
    let cpus = read_cpus(&system.join("cpu"), &info, &nodes, usable(&root.join("proc/self/status")).as_deref());
    Topology {
        imagined: None,
        model: field(&info, "model name").map(str::to_owned),
        virtualised: field(&info, "flags").map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor")),
        kernel: text(&root.join("proc/sys/kernel/osrelease")),
        caches: read_caches(&system.join("cpu"), &cpus),
        offline: list(&system.join("cpu/offline")).unwrap_or_default(),
        cpus,
        nodes,
    }
}

fn read_cpus(system: &Path, info: &str, nodes: &[Node], usable: Option<&[u32]>) -> Vec<Cpu> {
    let listed = || info.lines().filter(|line| key(line) == "processor").filter_map(|line| value(line).parse().ok());
    let online = list(&system.join("online")).unwrap_or_else(|| listed().collect());
    let cpu = |&id: &u32| {
        let topology = system.join(format!("cpu{id}/topology"));
        let siblings = list(&topology.join("core_cpus_list")).or_else(|| list(&topology.join("thread_siblings_list")));
        Cpu {
            id,
            package: number(&topology.join("physical_package_id")),
            die: number(&topology.join("die_id")),
            core: number(&topology.join("core_id")),
            siblings: siblings.unwrap_or_default(),
            node: nodes.iter().find(|node| node.cpus.contains(&id)).map(|node| node.id),
            usable: usable.is_none_or(|usable| usable.contains(&id)),
        }
    };
    online.iter().map(cpu).collect()
}

fn read_caches(system: &Path, cpus: &[Cpu]) -> Vec<Cache> {
    let mut caches: Vec<Cache> = Vec::new();
    let directory = |cpu: &Cpu| system.join(format!("cpu{}/cache", cpu.id));
    for (_, path) in cpus.iter().flat_map(|cpu| numbered(&directory(cpu), "index")) {
        let Some(level) = number(&path.join("level")) else { continue };
        let bytes = text(&path.join("size")).and_then(|size| bytes(&size));
        let cpus = list(&path.join("shared_cpu_list")).unwrap_or_default();
        let cache = Cache { level, kind: text(&path.join("type")), bytes, cpus };
        // Each CPU lists the caches that it shares. A cache without a list cannot be distinguished from its neighbours'
        // and is kept.
        if cache.cpus.is_empty() || !caches.contains(&cache) {
            caches.push(cache);
        }
    }
    caches.sort_by(|a, b| (a.level, &a.kind, &a.cpus).cmp(&(b.level, &b.kind, &b.cpus)));
    caches
}

fn read_nodes(system: &Path) -> Vec<Node> {
    let node = |(id, path): (u32, PathBuf)| Node {
        id,
        cpus: list(&path.join("cpulist")).unwrap_or_default(),
        memory_kib: text(&path.join("meminfo")).and_then(|info| memory(&info)),
        distances: text(&path.join("distance"))
            .map(|row| row.split(' ').flat_map(str::parse).collect())
            .unwrap_or_default(),
    };
    numbered(system, "node").into_iter().map(node).collect()
}

/// The CPUs that the process may use, from its status file.
fn usable(status: &Path) -> Option<Vec<u32>> {
    let status = fs::read_to_string(status).ok()?;
    parse_list(field(&status, "Cpus_allowed_list")?)
}

/// The directory's entries whose name is `prefix` and a number, sorted by number.
fn numbered(directory: &Path, prefix: &str) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| Some((entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?, entry.path())))
        .collect();
    found.sort();
    found
}

fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// A number; the kernel writes -1 if it knows none.
fn number<T: FromStr>(path: &Path) -> Option<T> {
    text(path)?.parse().ok()
}

fn list(path: &Path) -> Option<Vec<u32>> {
    parse_list(&text(path)?)
}

/// Parses a list like `0-3,7`. `None` for anything else, and for a number beyond [`Topology::MOST_IMAGINED`].
fn parse_list(list: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if u64::from(last) >= Topology::MOST_IMAGINED {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// Parses a cache's size, such as `48K`.
fn bytes(size: &str) -> Option<u64> {
    let digits = size.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let scale = match &size[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(scale)
}

/// The `MemTotal` of a node's `meminfo`, in KiB.
fn memory(info: &str) -> Option<u64> {
    let line = info.lines().find(|line| line.contains("MemTotal:"))?;
    line.split_whitespace().rev().nth(1)?.parse().ok()
}

fn key(line: &str) -> &str {
    line.split_once(':').map_or(line, |(key, _)| key).trim()
}

fn value(line: &str) -> &str {
    line.split_once(':').map_or("", |(_, value)| value).trim()
}

/// The value of the first `key : value` line with this key.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find(|line| key(line) == name).map(value).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A made-up file system, removed at the end.
    struct Tree(PathBuf);

    impl Tree {
        fn new(files: &[(&str, &str)]) -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let unique = format!("flashlock-topology-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let tree = Self(std::env::temp_dir().join(unique));
            tree.add("", files);
            tree
        }

        fn add(&self, under: &str, files: &[(&str, &str)]) {
            for (path, content) in files {
                let path = self.0.join(under).join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
        }

        fn add_cpu(&self, cpu: u32, package: &str, core: &str, siblings: &str) {
            let base = format!("sys/devices/system/cpu/cpu{cpu}");
            self.add(&base, &[("topology/physical_package_id", package), ("topology/die_id", "0\n")]);
            self.add(&base, &[("topology/core_id", core), ("topology/thread_siblings_list", siblings)]);
            let caches = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M")];
            for (index, (level, kind, size)) in caches.into_iter().enumerate() {
                let files = [("level", level), ("type", kind), ("size", size), ("shared_cpu_list", siblings)];
                self.add(&format!("{base}/cache/index{index}"), &files);
            }
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn two_sockets_with_smt_and_an_offline_cpu() {
        let tree = Tree::new(&[
            ("sys/devices/system/cpu/online", "0-6\n"),
            ("sys/devices/system/cpu/offline", "7\n"),
            ("sys/devices/system/node/node0/cpulist", "0-1,4-5\n"),
            ("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:   1024 kB\nNode 0 MemFree: 5 kB\n"),
            ("sys/devices/system/node/node1/cpulist", "2-3,6\n"),
            ("sys/devices/system/node/node1/distance", "21 10\n"),
            ("sys/devices/system/node/online", "0-1\n"),
            ("proc/cpuinfo", "processor\t: 0\nmodel name\t: Imaginary 9000\nflags\t\t: fpu rdpid\n"),
            ("proc/sys/kernel/osrelease", "6.18.0\n"),
            ("proc/self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-2,6\n"),
        ]);
        for (core, siblings) in ["0,4\n", "1,5\n", "2,6\n", "3\n"].into_iter().enumerate() {
            for cpu in parse_list(siblings).unwrap() {
                tree.add_cpu(cpu, ["0\n", "1\n"][core / 2], ["0\n", "1\n"][core % 2], siblings);
            }
        }
        let machine = Topology::read_under(&tree.0);
        assert_eq!((machine.cpus.len(), machine.offline.as_slice()), (7, [7].as_slice()));
        assert_eq!((machine.packages(), machine.cores(), machine.usable()), (Some(2), Some(4), 4));
        let cpu = &machine.cpus[6];
        assert_eq!((cpu.id, cpu.package, cpu.core, cpu.node), (6, Some(1), Some(0), Some(1)));
        assert_eq!((cpu.siblings.as_slice(), cpu.usable, machine.cpus[3].usable), ([2, 6].as_slice(), true, false));
        assert_eq!((machine.nodes[0].memory_kib, machine.nodes[1].memory_kib), (Some(1024), None));
        assert_eq!((machine.nodes[0].distances.len(), machine.nodes[1].distances.as_slice()), (0, [21, 10].as_slice()));
        assert_eq!(machine.model.as_deref(), Some("Imaginary 9000"));
        assert_eq!((machine.virtualised, machine.kernel.as_deref()), (Some(false), Some("6.18.0")));
        // A shared cache is listed once, not once for each CPU that shares it.
        let first = Cache { level: 1, kind: Some("Data".into()), bytes: Some(48 << 10), cpus: vec![0, 4] };
        assert_eq!((machine.caches.len(), &machine.caches[0]), (3 * 4, &first));
    }

    #[test]
    fn what_is_missing_is_unknown() {
        let tree = Tree::new(&[("proc/cpuinfo", "processor : 0\n\nprocessor : 1\n")]);
        let machine = Topology::read_under(&tree.0);
        assert_eq!((machine.cpus.len(), machine.nodes.len(), machine.usable()), (2, 0, 2));
        assert_eq!((machine.packages(), machine.cores(), machine.cpus[0].node), (None, None, None));
        assert_eq!((machine.model, machine.virtualised, machine.caches), (None, None, vec![]));
        assert_eq!(Topology::read_under(Path::new("/nowhere/at/all")), Topology::default());
    }

    #[test]
    fn what_makes_no_sense_is_unknown() {
        let tree = Tree::new(&[("sys/devices/system/cpu/online", "0\n")]);
        tree.add_cpu(0, "-1\n", "0\n", "0-x");
        tree.add("sys/devices/system/cpu/cpu0/cache/index0", &[("size", "many")]);
        let machine = Topology::read_under(&tree.0);
        assert_eq!((machine.packages(), machine.cpus[0].siblings.len()), (None, 0));
        assert_eq!(machine.caches[0].bytes, None);
        assert_eq!(parse_list("0-2,7\n"), Some(vec![0, 1, 2, 7]));
        for wrong in ["x", "1-", "0-4294967295"] {
            assert_eq!(parse_list(wrong), None, "{wrong}");
        }
    }
}
