//! fio: processes that share locks in a mapped file, and threads that verify checksums of the blocks that others have
//! read.

use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::counts::Needs;
use super::run::Run;
use super::{App, Quick};

pub(crate) const FIO: App = App {
    name: "fio",
    packages: &["fio"],
    quick: Quick::Once,
    sources: &[],
    needs: &[Needs::SharedMutexLock(5000), Needs::SharedCondWait(100)],
    run,
};

/// Bytes that are written by all jobs together, and as many read again.
const BYTES: u64 = 8 << 20;

/// Blocks are verified by other threads than read them. (fio's offloaded submission would be more, but rarely, on a
/// busy machine, it waits for ever for its own workers, under glibc too.)
const VERIFY: &str = "--verify_async=2";

fn run(run: &Run) -> Result<()> {
    verify(run, "process", &[VERIFY]).context("jobs as processes")?;
    verify(run, "thread", &[VERIFY, "--thread"]).context("jobs as threads")
}

fn verify(run: &Run, name: &str, options: &[&str]) -> Result<()> {
    let jobs = u64::from(run.threads);
    let (size, output) = (BYTES / jobs, format!("{name}.json"));
    let mut command =
        ["fio", "--ioengine=psync", "--rw=randwrite", "--bs=4k", "--directory=."].map(str::to_owned).to_vec();
    command.extend(["--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--output-format=json"].map(str::to_owned));
    command.extend([format!("--name={name}"), format!("--size={size}"), format!("--numjobs={jobs}")]);
    command.push(format!("--output={output}"));
    command.extend(options.iter().map(|option| (*option).to_owned()));
    run.wrapped(command)?;
    judge(&fs::read_to_string(run.directory.join(output))?, jobs, size)
}

/// Every job has written and verified all that it had to.
fn judge(report: &str, jobs: u64, size: u64) -> Result<()> {
    let report: Value = serde_json::from_str(report).with_context(|| format!("not JSON: {report}"))?;
    let done = report["jobs"].as_array().context("no jobs in the report")?;
    if done.len() as u64 != jobs {
        bail!("{} jobs, not {jobs}", done.len());
    }
    for job in done {
        let number = |value: &Value| value.as_u64().with_context(|| format!("not a number: {value}"));
        let got = [number(&job["error"])?, number(&job["write"]["io_bytes"])?, number(&job["read"]["io_bytes"])?];
        if got != [0, size, size] {
            bail!("error, bytes written, bytes verified: {got:?}, not [0, {size}, {size}]");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_verified_too_little_is_an_error() {
        let report =
            |read: u64| format!(r#"{{"jobs":[{{"error":0,"write":{{"io_bytes":8}},"read":{{"io_bytes":{read}}}}}]}}"#);
        assert!(judge(&report(8), 1, 8).is_ok());
        assert!(judge(&report(4), 1, 8).is_err());
        assert!(judge(&report(8), 2, 8).is_err());
        assert!(judge("{}", 1, 8).is_err());
    }
}
