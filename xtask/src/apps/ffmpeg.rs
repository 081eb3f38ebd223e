//! ffmpeg: frame threads of x264 and of the decoder, filter threads. With so many threads it must make, bit for bit,
//! what it makes under glibc.

use anyhow::{Result, bail};

use super::counts::Needs;
use super::run::Run;
use super::{App, Quick};

pub(crate) const FFMPEG: App = App {
    name: "ffmpeg",
    packages: &["ffmpeg"],
    quick: Quick::Never,
    sources: &[],
    needs: &[Needs::MutexLock(10_000), Needs::CondWait(200)],
    run,
};

const SECONDS: usize = 4;
const RATE: usize = 25;

fn run(run: &Run) -> Result<()> {
    let threads = run.threads.to_string();
    let quiet = ["ffmpeg", "-v", "error", "-nostdin", "-filter_threads", &threads];
    let video = format!("testsrc2=size=640x360:rate={RATE}:duration={SECONDS}");
    let sound = format!("sine=frequency=440:duration={SECONDS}");
    let encode = [
        "-f",
        "lavfi",
        "-i",
        &video,
        "-f",
        "lavfi",
        "-i",
        &sound,
        "-vf",
        "hflip,unsharp",
        "-threads",
        &threads,
        "-c:v",
        "libx264",
        "-preset",
        "veryfast",
        "-c:a",
        "aac",
        "film.mkv",
    ];
    run.wrapped(quiet.iter().chain(&encode).copied())?;
    let decode = ["-threads", &threads, "-i", "film.mkv", "-map", "0", "-f", "framemd5", "frames"];
    run.wrapped(quiet.iter().chain(&decode).copied())?;
    let list = std::fs::read_to_string(run.directory.join("frames"))?;
    let frames: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
    let pictures = frames.iter().filter(|line| line.starts_with("0,")).count();
    if pictures != SECONDS * RATE {
        bail!("{pictures} frames, not {}:\n{list}", SECONDS * RATE);
    }
    run.same("the checksums of the frames", &frames.join("\n"))
}
