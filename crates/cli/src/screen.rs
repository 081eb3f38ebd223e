//! Output: colours, widths, broken pipes.

use std::io::{self, Write};
use std::mem::MaybeUninit;

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use flashlock_report::table;

use crate::failure::Failure;

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl When {
    /// Applies the setting to all output.
    pub(crate) fn apply(self) {
        let choice = match self {
            Self::Auto => ColorChoice::Auto,
            Self::Always => ColorChoice::Always,
            Self::Never => ColorChoice::Never,
        };
        choice.write_global();
    }

    /// The setting for the text of `--help`.
    pub(crate) fn for_help(self) -> clap::ColorChoice {
        match self {
            Self::Auto => clap::ColorChoice::Auto,
            Self::Always => clap::ColorChoice::Always,
            Self::Never => clap::ColorChoice::Never,
        }
    }
}

/// The style of headings.
pub(crate) const HEADING: Style = Style::new().bold();
/// The style of good news.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// The style of warnings.
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// The style of problems.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();

/// Text in a style.
pub(crate) fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// Writes the whole text to standard output at once.
pub(crate) fn emit(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::nobody_reads(),
        _ => Failure::new(format_args!("cannot write to standard output: {}", reason(&error))),
    })
}

/// Writes to standard error. Text that cannot be written is lost.
pub(crate) fn tell(text: &str) {
    let mut err = anstream::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// Reports an error, or something less serious (`kind`).
pub(crate) fn complain(kind: Option<&str>, what: &str) {
    let name = styled(if kind.is_some() { WARNING } else { BAD }, "flashlock:");
    let kind = kind.map(|kind| format!(" {kind}:")).unwrap_or_default();
    tell(&format!("{name}{kind} {what}\n"));
}

/// Reports a failure, unless it is a quiet one.
pub(crate) fn report(failure: &Failure) {
    let what = failure.to_string();
    if !what.is_empty() {
        complain(None, &what);
    }
}

/// The width of the screen behind a descriptor, within limits. A file or pipe has the width in `COLUMNS`, else
/// [`table::WIDTH`].
pub(crate) fn width(fd: i32) -> u16 {
    let told = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal_width(fd).or_else(told).unwrap_or(table::WIDTH).clamp(40, 140)
}

fn terminal_width(fd: i32) -> Option<u16> {
    let mut size = MaybeUninit::<libc::winsize>::zeroed();
    // SAFETY: the call writes a winsize or fails.
    let size = unsafe { (libc::ioctl(fd, libc::TIOCGWINSZ, size.as_mut_ptr()) == 0).then(|| size.assume_init()) };
    size.map(|size| size.ws_col).filter(|&columns| columns > 0)
}

/// An error of the system in its own words, without Rust's `(os error 2)`.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_speak_plainly() {
        assert_eq!(reason(&io::Error::from_raw_os_error(libc::ENOENT)), "No such file or directory");
        assert_eq!(reason(&io::Error::other("odd")), "odd");
    }
}
