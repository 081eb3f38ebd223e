//! The style sheet in a picture: what `plotters` cannot say.
//!
//! Colours are written into each element for a white ground; where a reader's system is dark, the sheet replaces each
//! by its dark shade. So one file serves both, also where a page shows it as an image. Patterns of lines are here as
//! well.

use std::fmt::Write as _;

use plotters::style::RGBColor;

use super::look::{Look, SHADES};

/// The picture with a title, which programs read to people who cannot see it, and with its style sheet.
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

/// As `plotters` writes it into elements.
fn hex(colour: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
