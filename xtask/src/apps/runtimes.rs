//! Virtual machines with threads of their own beside the program's: Node.js with workers, Java with a parallel
//! collector.

use std::ffi::OsString;

use anyhow::Result;

use super::counts::Needs;
use super::run::{Facts, Run};
use super::stage::{Source, script};
use super::{App, Quick};

pub(crate) const NODE: App = App {
    name: "node",
    packages: &["nodejs"],
    quick: Quick::Never,
    sources: &[],
    needs: &[Needs::MutexLock(10_000), Needs::CondWait(20), Needs::RwLock(50_000)],
    run: node,
};

pub(crate) const JAVA: App = App {
    name: "java",
    packages: &["default-jdk-headless"],
    quick: Quick::Never,
    sources: &[Source { file: "Collect.java", options: &[] }],
    needs: &[Needs::MutexLock(5000), Needs::CondWait(200), Needs::SemWait(50)],
    run: java,
};

/// What all threads do together.
const ROUNDS: u32 = 24_000;
const TREES: u32 = 3200;

fn node(run: &Run) -> Result<()> {
    let rounds = ROUNDS / run.threads / 10 * 10;
    let pool = format!("UV_THREADPOOL_SIZE={}", run.threads);
    let arguments = [run.threads.to_string(), rounds.to_string()].map(OsString::from);
    let words = ["env".into(), pool.into(), "node".into(), script("workers.js")].into_iter().chain(arguments);
    let facts = Facts::of(&run.wrapped::<OsString>(words)?, "part=node")?;
    facts.expect("counter", facts.number("expected")?)?;
    facts.at_least("counter", 1)?;
    facts.expect("echoes", facts.number("messages")?)?;
    facts.expect("sum", facts.number("expected_sum")?)?;
    facts.expect("wrong", 0)
}

fn java(run: &Run) -> Result<()> {
    let rounds = TREES / run.threads;
    let collectors = format!("-XX:ParallelGCThreads={}", run.threads);
    // The heap is small, so that it collects; after each collection it checks the heap.
    let fixed = ["java", "-XX:+UseParallelGC", &collectors, "-XX:-UseDynamicNumberOfGCThreads", "-Xmx96m"];
    let checks = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+VerifyAfterGC", "-Xlog:disable", "-cp"];
    let words = fixed.into_iter().chain(checks).map(OsString::from);
    let threads = [run.threads.to_string(), rounds.to_string()].map(OsString::from);
    let words = words.chain([run.compiled(""), "Collect".into()]).chain(threads);
    let facts = Facts::of(&run.wrapped(words)?, "part=java")?;
    facts.expect("trees", i64::from(rounds * run.threads))?;
    facts.expect("shared", facts.number("trees")?)?;
    facts.expect("received", facts.number("handed")?)?;
    facts.expect("sum", facts.number("expected_sum")?)?;
    facts.expect("wrong", 0)?;
    facts.at_least("collections", 2)
}
