//! One run: a process group of its own, with a time limit, its output and its resources.
//!
//! At the time limit or at an interruption, the group is asked to end. If its first process still exists a second
//! later, the whole group is killed. So scripts can clean up after themselves. When the program has ended, the rest of
//! the group is killed at once, because it would disturb the next run. Signals for this process are blocked, and
//! awaited together with SIGCHLD, so that none is lost between two runs.
//!
//! A terminal's Ctrl-Z stops this process and not the program, which is in another group. So nobody notices when the
//! program ends, and the run's time would include the time until somebody continues this process. When SIGCONT tells
//! that this has happened, the run is discarded and repeated.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::schedule::spoken;
use crate::launch::{Resources, signal_name, signals};

/// How many bytes of each stream are kept, from its end.
const KEPT_BYTES: usize = 8 << 20;
/// How long a stream may stay open after the program's end, because a process that left the group may hold it.
const GRACE: Duration = Duration::from_millis(500);

/// How long a program may take to end after it was asked to.
const COURTESY: Duration = Duration::from_secs(1);
/// How long to rely on SIGCHLD alone: another thread that does not block it could have received it.
const GLANCE: Duration = Duration::from_millis(100);

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Ending {
    /// Successfully.
    #[default]
    Success,
    /// With another exit status.
    Status(i32),
    /// By a signal.
    Signal(i32),
    /// It was still running at the time limit.
    TimedOut(Duration),
}

/// A run that was not interrupted.
#[derive(Default)]
pub(super) struct Finished {
    pub(super) ending: Ending,
    pub(super) resources: Resources,
    /// The memory of its largest process; unknown if that was smaller than this command, because the kernel counts from
    /// there.
    pub(super) peak_rss_kib: Option<u64>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// The outcome of a run.
pub(super) enum Outcome {
    Finished(Box<Finished>),
    /// The user interrupted it.
    Interrupted,
}

impl Ending {
    /// Decodes the status from `wait4`.
    fn of(status: libc::c_int) -> Self {
        match status {
            _ if libc::WIFSIGNALED(status) => Self::Signal(libc::WTERMSIG(status)),
            _ if libc::WEXITSTATUS(status) != 0 => Self::Status(libc::WEXITSTATUS(status)),
            _ => Self::Success,
        }
    }

    /// In words.
    pub(super) fn words(self) -> String {
        match self {
            Self::Success => "exit status 0".into(),
            Self::Status(status) => format!("exit status {status}"),
            Self::Signal(signal) => format!("killed by {}", signal_name(signal)),
            Self::TimedOut(limit) => format!("timed out after {}, killed", spoken(limit)),
        }
    }
}

impl Finished {
    /// The end of its output: of standard error if that is not empty, else of standard output.
    pub(super) fn last_words(&self) -> String {
        const LINES: usize = 10;
        const BYTES: usize = 2000;
        let text = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        let lines: Vec<&str> = text.trim_end().lines().collect();
        let text = lines[lines.len().saturating_sub(LINES)..].join("\n");
        let from = (text.len().saturating_sub(BYTES)..).find(|from| text.is_char_boundary(*from)).unwrap_or(0);
        text[from..].to_owned()
    }
}

/// While it exists, SIGCHLD and the interrupting signals are blocked, and awaited here.
pub(super) struct Watch {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

impl Watch {
    /// Starts blocking. Call it before there is a second thread.
    pub(super) fn begin() -> Self {
        let heeded = signals::INTERRUPTING.into_iter().filter(|signal| !signals::is_ignored(*signal));
        let set = signals::set_of(heeded.chain([libc::SIGCHLD, libc::SIGCONT]));
        // If SIGCHLD is ignored, a child's status is lost.
        signals::set_default(libc::SIGCHLD);
        Self { set, before: signals::block(&set) }
    }

    /// Whether an interruption is waiting.
    pub(super) fn interrupted(&self) -> bool {
        while let Some(signal) = signals::wait_until(&self.set, Duration::ZERO) {
            if is_interrupting(signal) {
                return true;
            }
        }
        false
    }

    /// Runs a command to its end, or to its time limit; again, if this process was stopped meanwhile.
    pub(super) fn run(&self, command: &mut Command, limit: Duration) -> io::Result<Outcome> {
        loop {
            if let Some(outcome) = self.run_once(command, limit)? {
                return Ok(outcome);
            }
        }
    }

    /// [`None`]: this process was stopped meanwhile.
    fn run_once(&self, command: &mut Command, limit: Duration) -> io::Result<Option<Outcome>> {
        let own_size = peak_of_this_process();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mask = self.before;
        // SAFETY: `prctl` and `sigprocmask` may be called between fork and exec. A program must not survive this
        // process if that is killed, and must receive the signals that only this process blocks.
        unsafe {
            command.pre_exec(move || {
                signals::set_mask(&mask);
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let start = Instant::now();
        let mut child = command.spawn()?;
        let streams = [Stream::of(child.stdout.take()), Stream::of(child.stderr.take())];
        let cause = self.wait(&child, start, limit);
        let elapsed = start.elapsed();
        // It has ended and is not reaped yet, so its number belongs to no other process.
        signal_group(&child, libc::SIGKILL);
        let (status, usage) = reap(&child);
        let ending = match cause {
            Cause::Ended => Ending::of(status),
            Cause::TimeIsUp => Ending::TimedOut(limit),
            Cause::Interrupted => return Ok(Some(Outcome::Interrupted)),
            Cause::Stopped => return Ok(None),
        };
        let resources = Resources::new(elapsed, &usage);
        let [stdout, stderr] = streams.map(|stream| stream.text());
        let peak = u64::try_from(usage.ru_maxrss).ok().filter(|peak| *peak > own_size);
        Ok(Some(Outcome::Finished(Box::new(Finished { ending, resources, peak_rss_kib: peak, stdout, stderr }))))
    }

    /// Waits until the child has ended. At the time limit, at an interruption, or if this process was stopped, it ends
    /// the child.
    fn wait(&self, child: &Child, start: Instant, limit: Duration) -> Cause {
        let mut cause = Cause::Ended;
        // First the program's time limit, then its time to end, then the kernel's time to kill it.
        let mut deadline = start + limit;
        while !has_ended(child) {
            let left = deadline.saturating_duration_since(Instant::now());
            let seen = match signals::wait_until(&self.set, left.min(GLANCE)) {
                Some(signal) if is_interrupting(signal) => Cause::Interrupted,
                Some(libc::SIGCONT) => Cause::Stopped,
                None if Instant::now() >= deadline => Cause::TimeIsUp,
                _ => continue,
            };
            let (signal, patience) = match cause {
                Cause::Ended => (libc::SIGTERM, COURTESY),
                // After a second interruption, kill at once.
                _ => (libc::SIGKILL, GRACE),
            };
            if seen == Cause::Interrupted || cause == Cause::Ended {
                cause = seen;
            }
            signal_group(child, signal);
            deadline = Instant::now() + patience;
        }
        let was_stopped =
            || signals::wait_until(&signals::set_of([libc::SIGCONT].into_iter()), Duration::ZERO).is_some();
        if cause != Cause::Interrupted && was_stopped() { Cause::Stopped } else { cause }
    }
}

/// Whether a signal of the set is for the user's interruption.
fn is_interrupting(signal: libc::c_int) -> bool {
    signals::INTERRUPTING.contains(&signal)
}

/// Why a run ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Ended,
    TimeIsUp,
    Interrupted,
    /// This process was stopped, so the run's time is unknown.
    Stopped,
}

impl Drop for Watch {
    fn drop(&mut self) {
        signals::discard_pending(&self.set);
        signals::set_mask(&self.before);
    }
}

/// Whether the child has ended. It is not reaped.
fn has_ended(child: &Child) -> bool {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is writable, and all-zero is a valid siginfo, which stays if the child is still running.
    unsafe {
        let failed = libc::waitid(libc::P_PID, child.id(), info.as_mut_ptr(), options) != 0;
        failed || info.assume_init().si_pid() != 0
    }
}

/// The status of a child that has ended, and its resources.
fn reap(child: &Child) -> (libc::c_int, libc::rusage) {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both are writable, and all-zero is a valid rusage. Nothing else waits for this child.
    unsafe {
        libc::wait4(child.id() as libc::pid_t, &raw mut status, 0, usage.as_mut_ptr());
        (status, usage.assume_init())
    }
}

/// Sends a signal to the child's group, which may have no process any more.
fn signal_group(child: &Child, signal: libc::c_int) {
    // SAFETY: signals a group that was made for the child.
    unsafe { libc::kill(-(child.id() as libc::pid_t), signal) };
}

/// The highest memory use of this process so far, in KiB: a child's maximum starts there.
fn peak_of_this_process() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: writes the structure; all-zero is valid, too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_maxrss as u64
}

/// A stream that is read while the program runs.
struct Stream {
    kept: Arc<Mutex<Vec<u8>>>,
    /// Disconnected when the stream has ended.
    end: Receiver<()>,
}

impl Stream {
    fn of(source: Option<impl Read + Send + 'static>) -> Self {
        let (sender, end) = mpsc::channel();
        let kept = Arc::new(Mutex::new(Vec::new()));
        let stream = Self { kept: Arc::clone(&kept), end };
        thread::spawn(move || {
            let _ends_with_this_thread: Sender<()> = sender;
            let Some(mut source) = source else { return };
            let mut chunk = vec![0; 64 << 10];
            // An error means that the pipe is closed; what has arrived counts.
            while let Ok(got @ 1..) = source.read(&mut chunk) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&chunk[..got]);
                if kept.len() > 2 * KEPT_BYTES {
                    let superfluous = kept.len() - KEPT_BYTES;
                    kept.drain(..superfluous);
                }
            }
        });
        stream
    }

    /// What the stream has brought when it has ended or its grace is over. Invalid UTF-8 is replaced.
    fn text(&self) -> String {
        // Nothing is ever sent: this returns at the stream's end, or when the time is over.
        let _ = self.end.recv_timeout(GRACE);
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept[kept.len().saturating_sub(KEPT_BYTES)..]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signal masks belong to threads, so each test has its own watch.
    fn shell(script: &str, limit: Duration) -> Finished {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        match Watch::begin().run(&mut command, limit).expect("sh starts") {
            Outcome::Finished(run) => *run,
            Outcome::Interrupted => panic!("nobody interrupted"),
        }
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn endings() {
        assert_eq!(shell("exit 0", LONG).ending, Ending::Success);
        assert_eq!(shell("exit 7", LONG).ending.words(), "exit status 7");
        assert_eq!(shell("kill -SEGV $$", LONG).ending.words(), "killed by SIGSEGV");
    }

    #[test]
    fn a_hang_is_ended_with_all_its_processes() {
        let start = Instant::now();
        let run = shell("sleep 3600 & sleep 3600; echo never", Duration::from_millis(300));
        assert_eq!(run.ending.words(), "timed out after 0.3 s, killed");
        assert!(start.elapsed() < LONG && run.stdout.is_empty());
    }

    #[test]
    fn a_hanging_script_can_clean_up_and_one_that_will_not_end_is_killed() {
        let trapped = "trap 'echo cleaned; exit 1' TERM; sleep 3600 & wait";
        // On a busy machine the time may be over before the shell has set its trap.
        let begun = Instant::now();
        while shell(trapped, Duration::from_millis(300)).stdout != "cleaned\n" {
            assert!(begun.elapsed() < LONG, "it could not clean up");
        }
        let start = Instant::now();
        let stubborn = shell("trap '' TERM; sleep 3600; sleep 3600", Duration::from_millis(300));
        assert!(matches!(stubborn.ending, Ending::TimedOut(_)));
        assert!((COURTESY..LONG).contains(&start.elapsed()), "{:?}", start.elapsed());
    }

    #[test]
    fn what_is_left_behind_does_not_hold_us_up() {
        let start = Instant::now();
        // The second process leaves the group, and holds the stream.
        let run = shell("echo out; echo err >&2; sleep 3600 & setsid sleep 60 & exit 0", LONG);
        assert!(start.elapsed() < Duration::from_secs(50), "{:?}", start.elapsed());
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("out\n", "err\n"));
    }

    /// The time until somebody continues this process is not the program's.
    #[test]
    fn a_run_during_which_this_process_was_stopped_is_repeated() {
        let file = std::env::temp_dir().join(format!("flashlock-stopped-{}", std::process::id()));
        let _ = std::fs::remove_file(&file);
        // The first run takes long.
        let script = format!("echo run >> '{0}'; test $(wc -l < '{0}') -gt 1 || sleep 600; echo $PPID", file.display());
        // SAFETY: asks for the number of this thread, which waits for the signal.
        let thread = unsafe { libc::gettid() };
        let started = file.clone();
        let continues = thread::spawn(move || {
            while !started.exists() {
                thread::sleep(Duration::from_millis(5));
            }
            // SAFETY: sends a signal that the thread blocks.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGCONT) };
        });
        let run = shell(&script, LONG);
        continues.join().unwrap();
        assert_eq!((run.ending, std::fs::read_to_string(&file).unwrap().as_str()), (Ending::Success, "run\nrun\n"));
        assert!(run.resources.elapsed < LONG / 2 && run.stdout.lines().count() == 1, "{:?}", run.resources);
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn what_it_took_is_the_programs() {
        let run = shell("sleep 0.2; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done", LONG);
        assert!(run.resources.elapsed >= Duration::from_millis(200) && run.resources.user > Duration::ZERO);
        assert!(run.resources.voluntary_switches > 0);
    }

    #[test]
    fn last_words_are_the_last_lines_of_standard_error() {
        let run = Finished { stdout: "out\n".into(), stderr: " \n".into(), ..Finished::default() };
        assert_eq!(run.last_words(), "out");
        let many: String = (0..50).map(|line| format!("{line}\n")).collect();
        let run = Finished { stderr: many + &"é".repeat(3000), ..Finished::default() };
        assert!(run.last_words().len() <= 2000 && run.last_words().ends_with('é'));
    }
}
