//! Programs that show and convert documents: Chromium and LibreOffice, both without a screen.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail};

use super::counts::Needs;
use super::run::{Facts, Run};
use super::stage::script;
use super::{App, Quick};

pub(crate) const CHROMIUM: App = App {
    name: "chromium",
    packages: &["chromium", "python3"],
    quick: Quick::Never,
    sources: &[],
    needs: &[Needs::MutexLock(20_000), Needs::CondWait(200)],
    run: chromium,
};

pub(crate) const LIBREOFFICE: App = App {
    name: "libreoffice",
    packages: &["libreoffice-writer-nogui"],
    quick: Quick::Never,
    sources: &[],
    needs: &[Needs::MutexLock(50_000), Needs::CondWait(10)],
    run: libreoffice,
};

/// Primes below the limit of `worker.js`.
const PRIMES: i64 = 17_984;

fn chromium(run: &Run) -> Result<()> {
    let threads = i64::from(run.threads);
    let words = ["/usr/bin/python3".into(), script("chromium.py"), ".".into(), threads.to_string().into()];
    let done = run.plain::<OsString>(words.into_iter().chain(run.words().iter().cloned()))?;
    let facts = Facts::of(&done, "part=chromium")?;
    facts.expect("workers", threads)?;
    facts.expect("counter", facts.number("rounds")?)?;
    facts.at_least("rounds", threads)?;
    facts.expect("primes", PRIMES * threads)?;
    facts.expect("sent", 1)?;
    run.same("the picture", facts.text("pixels").context("`pixels` is missing")?)?;
    run.same("the hash", facts.text("hash").context("`hash` is missing")?)
}

const CHAPTERS: u32 = 20;
const PARAGRAPHS: u32 = 20;

/// From HTML to ODT, which is packed by a pool of threads, and from that to text, which must be what went in.
fn libreoffice(run: &Run) -> Result<()> {
    let paragraphs = paragraphs();
    fs::write(run.directory.join("book.html"), html(&paragraphs))?;
    convert(run, "odt", "book.html")?;
    convert(run, "txt:Text (encoded):UTF8,LF", "book.odt")?;
    let text = fs::read_to_string(run.directory.join("book.txt"))?;
    let lines: Vec<&str> =
        text.trim_start_matches('\u{feff}').lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines != paragraphs {
        let differ = lines.iter().zip(&paragraphs).find(|(line, paragraph)| line != paragraph);
        bail!("{} lines, not {}; the first that differ: {differ:?}", lines.len(), paragraphs.len());
    }
    Ok(())
}

fn convert(run: &Run, to: &str, file: &str) -> Result<()> {
    let profile = format!("-env:UserInstallation=file://{}/profile", run.directory.display());
    let pool = format!("MAX_CONCURRENCY={}", run.threads);
    let home = format!("HOME={}", run.directory.display());
    run.wrapped(["env", &pool, &home, "soffice", &profile, "--headless", "--convert-to", to, file])?;
    Ok(())
}

fn paragraphs() -> Vec<String> {
    let mut all = Vec::new();
    for chapter in 0..CHAPTERS {
        all.push(format!("Chapter {chapter}"));
        for paragraph in 0..PARAGRAPHS {
            let mut text = format!("Paragraph {chapter}.{paragraph}:");
            for word in 0..40 {
                let _ = write!(text, " word{}", (chapter * 31 + paragraph * 17 + word) % 997);
            }
            all.push(text);
        }
    }
    all
}

fn html(paragraphs: &[String]) -> String {
    let body: String = paragraphs.iter().map(|paragraph| format!("<p>{paragraph}</p>\n")).collect();
    format!("<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"></head><body>\n{body}</body></html>\n")
}
