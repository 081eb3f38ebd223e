//! Man pages. All is `clap_mangen`'s except what follows the options: there, examples and variables keep their lines,
//! and sections have their usual names.

use std::fs;
use std::io;
use std::path::Path;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

/// How the paragraph on exit statuses begins.
const STATUS: &str = "Exit status: ";

/// Writes a page for the command, and one for each verb.
pub(super) fn write(command: clap::Command, directory: &Path) -> io::Result<()> {
    let mut command = command;
    command.build();
    for about in command.get_subcommands().chain([&command]) {
        let page = Man::new(about.clone());
        let mut text = Vec::new();
        page.render_title(&mut text)?;
        page.render_name_section(&mut text)?;
        page.render_synopsis_section(&mut text)?;
        page.render_description_section(&mut text)?;
        page.render_options_section(&mut text)?;
        if about.has_subcommands() {
            page.render_subcommands_section(&mut text)?;
        }
        let end = about.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        rest(&end).to_writer(&mut text)?;
        if about.get_version().is_some() {
            page.render_version_section(&mut text)?;
        }
        fs::write(directory.join(page.get_filename()), text)?;
    }
    Ok(())
}

/// The end of a help text. A list has a title in a line of its own, and indented lines; all else is paragraphs.
fn rest(help: &str) -> Roff {
    let mut roff = Roff::default();
    let mut section = String::new();
    for block in help.split("\n\n").map(|block| block.trim_matches('\n')).filter(|block| !block.is_empty()) {
        let list = block.split_once(":\n").filter(|(_, lines)| lines.starts_with(' '));
        let (title, text) = match (list, block.strip_prefix(STATUS)) {
            (Some((title, lines)), _) => (title, lines),
            (None, Some(status)) => (STATUS.trim_end_matches(": "), status),
            (None, None) => ("Notes", block),
        };
        if section == title {
            roff.control("PP", []);
        } else {
            roff.control("SH", [title.to_uppercase().as_str()]);
            section = title.to_owned();
        }
        if list.is_some() {
            // The lines are as wide as a screen, with the indentation that they have.
            roff.control("in", ["0"]);
            roff.control("nf", []);
        }
        for line in text.lines() {
            roff.text([roman(line)]);
        }
        if list.is_some() {
            roff.control("fi", []);
            roff.control("in", []);
        }
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_their_lines_and_sections_have_names() {
        let help = "Examples:\n  a -x   why\n  b\n\nHow: it\nworks.\n\nMore.\n\nEnvironment:\n  V  value\n\n\
                    Exit status: 0;\n1.";
        let list = |lines: &str| format!(".in 0\n.nf\n{lines}.fi\n.in\n");
        let expected = format!(
            ".SH EXAMPLES\n{}.SH NOTES\nHow: it\nworks.\n.PP\nMore.\n.SH ENVIRONMENT\n{}.SH \"EXIT STATUS\"\n0;\n1.\n",
            list("  a \\-x   why\n  b\n"),
            list("  V  value\n"),
        );
        let page = rest(help).render();
        assert!(page.ends_with(&expected), "{page}\n{expected}");
    }
}
