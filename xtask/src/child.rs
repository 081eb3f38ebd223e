//! Running a program with a time limit and keeping what it printed.
//!
//! Every program gets a process group of its own, which is killed as a whole when the time is up, when the program has
//! ended (it may have left processes behind) and when this process is interrupted.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::files;
use crate::system::Group;

/// The process groups that are running.
static RUNNING: Mutex<Vec<Group>> = Mutex::new(Vec::new());

/// Directories to be removed when this process is interrupted.
static TEMPORARY: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// How long a command may take that takes a second or so: it is ended if it hangs, not if the machine is busy.
pub(crate) const AGAINST_HANGS: Duration = Duration::from_secs(600);

/// How long anything may take at idle priority, where other programs may have the CPUs.
const AT_IDLE_PRIORITY: Duration = Duration::from_secs(24 * 3600);

/// Whether programs are to leave nothing out.
static FULL: AtomicBool = AtomicBool::new(false);

/// What tells model tests and the conformance program to leave nothing out.
const ENV_FULL: &str = "FLASHLOCK_FULL";

/// From now on programs are to leave nothing out.
pub(crate) fn be_exhaustive() {
    FULL.store(true, Ordering::Relaxed);
}

/// Whether they are.
pub(crate) fn is_exhaustive() -> bool {
    FULL.load(Ordering::Relaxed)
}

/// How much of a failed program's output an error message shows, in lines from its end.
const SHOWN_LINES: usize = 5000;

/// A command and how long it may take.
pub(crate) struct Program {
    command: Command,
    limit: Duration,
}

/// What became of a program.
pub(crate) struct Finished {
    /// The command line, for messages.
    pub(crate) line: String,
    /// `None`: it was still running when its time was up.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    limit: Duration,
}

/// What ld.so says of a library that is not there. Then it runs the program without it.
const IGNORED: &str = "from LD_PRELOAD cannot be preloaded";

impl Program {
    /// Neither the environment's `LD_PRELOAD` nor its lock reaches the program, unless the command sets them.
    pub(crate) fn new(mut command: Command, limit: Duration) -> Self {
        for variable in ["LD_PRELOAD", "FLASHLOCK", "FLASHLOCK_RW"] {
            if !command.get_envs().any(|(name, _)| name == variable) {
                command.env_remove(variable);
            }
        }
        if FULL.load(Ordering::Relaxed) {
            command.env(ENV_FULL, "1");
        }
        Self { command, limit }
    }

    pub(crate) fn run(mut self) -> Result<Finished> {
        let line = command_line(&self.command);
        if has_idle_priority(&files::read(Path::new("/proc/self/stat"))?) {
            self.limit = self.limit.max(AT_IDLE_PRIORITY);
        }
        let started = Instant::now();
        self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = self.command.spawn().with_context(|| format!("cannot start {line}"))?;
        let group = Running::of(&child);
        let stdout = reader(child.stdout.take());
        let stderr = reader(child.stderr.take());
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if started.elapsed() > self.limit {
                break None;
            }
            thread::sleep(Duration::from_millis(2));
        };
        drop(group);
        child.wait()?;
        let (stdout, stderr) = (stdout.join().unwrap_or_default(), stderr.join().unwrap_or_default());
        if stderr.contains(IGNORED) {
            bail!("$ {line}\n{stderr}so this run shows nothing");
        }
        Ok(Finished { line, status, stdout, stderr, limit: self.limit })
    }
}

impl Finished {
    pub(crate) fn ok(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// How it ended, in words: "exit status 1", "killed by signal 11", "still running after 10 s".
    pub(crate) fn ending(&self) -> String {
        match self.status {
            None => format!("still running after {} s", self.limit.as_secs_f64()),
            Some(status) => match status.signal() {
                Some(signal) => format!("killed by signal {signal}"),
                None => format!("exit status {}", status.code().unwrap_or(-1)),
            },
        }
    }

    /// Everything it printed, standard error last, with the command line and how it ended.
    pub(crate) fn transcript(&self) -> String {
        let mut text = format!("$ {}\n", self.line);
        for (stream, name) in [(&self.stdout, "standard output"), (&self.stderr, "standard error")] {
            let lines: Vec<&str> = stream.lines().collect();
            if let Some(hidden) = lines.len().checked_sub(SHOWN_LINES + 1) {
                let _ = writeln!(text, "[the first {} lines of its {name} are left out]", hidden + 1);
            }
            for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
                let _ = writeln!(text, "{line}");
            }
        }
        let _ = write!(text, "[{}]", self.ending());
        text
    }

    /// Its standard output, or an error with all it printed.
    pub(crate) fn successful(self) -> Result<String> {
        if !self.ok() {
            bail!("{}", self.transcript());
        }
        Ok(self.stdout)
    }
}

/// What a command prints, if it succeeds.
pub(crate) fn output<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: &[S]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C.UTF-8");
    Program::new(command, AGAINST_HANGS).run()?.successful()
}

/// Reads a stream to its end beside the program. What is not UTF-8 is replaced.
fn reader(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // An error here means that the pipe is gone; what has arrived counts.
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn command_line(command: &Command) -> String {
    let mut words: Vec<String> = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", name.to_string_lossy(), value.to_string_lossy()));
        }
    }
    words.push(command.get_program().to_string_lossy().into_owned());
    words.extend(command.get_args().map(|argument| argument.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Whether `/proc/PID/stat` is that of a process which runs only while no other wants the CPU.
fn has_idle_priority(stat: &str) -> bool {
    // proc(5): the 41st field. The second may have spaces, and ends with the last parenthesis.
    const POLICY: usize = 41 - 3;
    const SCHED_IDLE: &str = "5";
    stat.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(POLICY)) == Some(SCHED_IDLE)
}

/// A running process group; dropping it kills what is left of it.
struct Running(Option<Group>);

impl Running {
    fn of(child: &std::process::Child) -> Self {
        let group = Group::led_by(child);
        if let (Some(group), Ok(mut running)) = (group, RUNNING.lock()) {
            running.push(group);
        }
        Self(group)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            group.kill();
            if let Ok(mut running) = RUNNING.lock() {
                running.retain(|other| *other != group);
            }
        }
    }
}

/// An interrupt removes this directory too.
pub(crate) fn remove_on_interrupt(directory: &Path) {
    if let Ok(mut directories) = TEMPORARY.lock() {
        directories.push(directory.to_owned());
    }
}

/// From now on an interrupt ends the running programs and then this process, with status 130.
pub(crate) fn end_programs_on_interrupt() -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            if let Ok(running) = RUNNING.lock() {
                running.iter().for_each(|group| group.kill());
            }
            for directory in TEMPORARY.lock().iter().flat_map(|directories| directories.iter()) {
                // No caller is left to report an error to.
                let _ = std::fs::remove_dir_all(directory);
            }
            std::process::exit(130);
        }
    });
    Ok(())
}

/// CPU time of all programs that this one has waited for, and of those that they have waited for, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cpu {
    pub(crate) user: f64,
    pub(crate) system: f64,
}

impl Cpu {
    pub(crate) fn total(self) -> f64 {
        self.user + self.system
    }
}

pub(crate) fn cpu_of_children() -> Result<Cpu> {
    let text = std::fs::read_to_string("/proc/self/stat").context("/proc/self/stat")?;
    cpu_in(&text).with_context(|| format!("/proc/self/stat says: {text}"))
}

/// See proc(5): `cutime` is field 16 and `cstime` field 17, in ticks of 10 ms; the name of the program, field 2, may
/// have spaces in it.
fn cpu_in(stat: &str) -> Option<Cpu> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(16 - 3).map(|ticks| Some(ticks.parse::<f64>().ok()? / 100.0));
    Some(Cpu { user: fields.next()??, system: fields.next()?? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_children_is_found() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194304 100 200 0 0 11 12 1234 14 20 0 1 0 99 1 2";
        assert_eq!(cpu_in(stat), Some(Cpu { user: 12.34, system: 0.14 }));
        assert_eq!(cpu_in("7 (a) S 1"), None);
        assert!(cpu_of_children().is_ok());
    }

    fn shell(script: &str, limit: Duration) -> Finished {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Program::new(command, limit).run().expect("sh starts")
    }

    #[test]
    fn keeps_both_streams_and_the_status() {
        let done = shell("echo out; echo err >&2; exit 3", AGAINST_HANGS);
        assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("out\n", "err\n"));
        assert_eq!(done.ending(), "exit status 3");
        assert!(!done.ok());
    }

    #[test]
    fn ends_a_whole_group_when_the_time_is_up() {
        let started = Instant::now();
        let done = shell("sleep 3600 & sleep 3600; echo never", Duration::from_millis(200));
        assert_eq!(done.ending(), "still running after 0.2 s");
        assert!(started.elapsed() < Duration::from_secs(1800));
        assert_eq!(done.stdout, "");
    }

    #[test]
    fn ends_what_a_program_left_behind() {
        let started = Instant::now();
        let done = shell("sleep 3600 & echo gone", AGAINST_HANGS);
        assert!(done.ok() && started.elapsed() < Duration::from_secs(1800));
    }

    #[test]
    fn idle_priority_is_seen() {
        for (line, is_idle) in [("cat /proc/self/stat", false), ("chrt --idle 0 cat /proc/self/stat", true)] {
            assert_eq!(has_idle_priority(&shell(line, AGAINST_HANGS).stdout), is_idle, "{line}");
        }
    }

    #[test]
    fn names_the_signal() {
        assert_eq!(shell("kill -SEGV $$", AGAINST_HANGS).ending(), "killed by signal 11");
    }
}
