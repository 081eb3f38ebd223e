//! A picture's style sheet, for what `plotters` cannot express.
//!
//! Each element has its colour for a white background. If the reader's system is in dark mode, the sheet replaces each
//! colour by its dark shade. So one file serves both modes, even if a page shows it as an image. The patterns of lines
//! are here, too.

use std::fmt::Write as _;

use plotters::style::RGBColor;

use super::look::{Look, SHADES};

/// The picture with its style sheet, and with a title for screen readers.
pub(super) fn dressed(svg: &str, title: &str, looks: &[Look]) -> String {
    let Some((head, rest)) = svg.split_once('\n') else { return svg.to_owned() };
    let head = head.replacen("<svg ", "<svg role=\"img\" ", 1);
    format!("{head}\n<title>{}</title>\n<style>\n{}</style>\n{rest}\n", escaped(title), sheet(looks))
}

fn sheet(looks: &[Look]) -> String {
    let mut text = String::new();
    for look in looks {
        if let Some(pattern) = look.stroke.pattern() {
            let _ = writeln!(text, "polyline[stroke=\"{}\"]{{stroke-dasharray:{pattern}}}", hex(look.colour));
        }
    }
    text.push_str("@media (prefers-color-scheme:dark){\n");
    let locks = looks.iter().map(|look| (look.colour, look.dark));
    for (light, dark) in SHADES.iter().map(|shade| (shade.light, shade.dark)).chain(locks) {
        let (light, dark) = (hex(light), hex(dark));
        let _ = writeln!(text, "[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}");
    }
    text + "}\n"
}

/// The colour as `plotters` writes it into elements.
fn hex(colour: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
