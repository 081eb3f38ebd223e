//! zstd and xz: worker threads that take blocks from a queue and hand them back in order. What they make must be, bit
//! for bit, what they make under glibc, and must unpack to what went in.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Result, bail};

use super::counts::Needs;
use super::run::Run;
use super::{App, Quick};

pub(crate) const ZSTD: App = App {
    name: "zstd",
    packages: &["zstd"],
    quick: Quick::Once,
    sources: &[],
    needs: &[Needs::MutexLock(500), Needs::CondWait(20)],
    run: zstd,
};

pub(crate) const XZ: App = App {
    name: "xz",
    packages: &["xz-utils"],
    quick: Quick::Once,
    sources: &[],
    needs: &[Needs::MutexLock(1000), Needs::CondWait(20)],
    run: xz,
};

/// Lines of the text that is packed, about 50 bytes each.
const LINES: u32 = 120_000;

fn zstd(run: &Run) -> Result<()> {
    prepare(run)?;
    // The smallest blocks that it makes, so that they are many.
    run.wrapped(["zstd", "-q", "-2", "-B512K", &format!("-T{}", run.threads), "-k", "text", "-o", "packed"])?;
    run.wrapped(["zstd", "-q", "-d", "packed", "-o", "unpacked"])?;
    judge(run)
}

fn xz(run: &Run) -> Result<()> {
    prepare(run)?;
    let threads = format!("-T{}", run.threads);
    run.wrapped(["sh", "-c", &format!("xz -0 --block-size=128KiB {threads} -c text > packed")])?;
    run.wrapped(["sh", "-c", &format!("xz -d {threads} -c packed > unpacked")])?;
    judge(run)
}

fn prepare(run: &Run) -> Result<()> {
    Ok(fs::write(run.directory.join("text"), text(LINES))?)
}

fn judge(run: &Run) -> Result<()> {
    run.plain(["cmp", "text", "unpacked"])?;
    let (text, packed) = (run.size("text")?, run.size("packed")?);
    if packed * 10 > text * 9 {
        bail!("{text} bytes became {packed}: it is hardly packed");
    }
    run.same("the checksum of the packed text", &run.checksum("packed")?)
}

/// Lines of words that are always the same, and can be packed somewhat.
pub(crate) fn text(lines: u32) -> String {
    let mut text = String::new();
    let mut state = 1_u32;
    for _ in 0..lines {
        for _ in 0..8 {
            // The constants of Numerical Recipes; the low bits are poor, so the high ones are used.
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let _ = write!(text, "{:x} ", (state >> 16) % 3000 * 7919);
        }
        text.push('\n');
    }
    text
}
