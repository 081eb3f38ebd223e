//! A picture of shares of 1 as a table of coloured fields: one panel for each condition, with rows in groups. The
//! fields have the same colours on light and dark pages.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::look::{GRID, GROUND, INK, SHADES, text};
use super::{Area, MARGIN, Undrawable, WIDTH, sheet};

const HEAD_HEIGHT: u32 = 62;
const LINE_HEIGHT: u32 = 20;
const ROW_HEIGHT: u32 = 21;
/// A panel's caption and its columns' headings.
const CAPTION_HEIGHT: u32 = 66;
const GROUP_WIDTH: u32 = 120;
const NAME_WIDTH: u32 = 80;
/// A field with a lower share names the winner.
const NEAR: f64 = 0.95;

/// The whole picture.
#[derive(Clone, Debug, Default)]
pub struct Heat {
    /// The heading.
    pub title: String,
    /// Lines of text below the heading.
    pub notes: Vec<String>,
    /// The panels, from top to bottom.
    pub panels: Vec<Panel>,
}

/// One table.
#[derive(Clone, Debug, Default)]
pub struct Panel {
    /// The heading.
    pub title: String,
    /// The name of the axis above the columns' headings.
    pub axis: String,
    /// The columns' headings.
    pub columns: Vec<String>,
    /// The rows from top to bottom. The rows of a group are adjacent.
    pub rows: Vec<Row>,
}

/// One row.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// The name of the row's group.
    pub group: String,
    /// The row's own name.
    pub name: String,
    /// One field for each column; `None` if unknown.
    pub fields: Vec<Option<Field>>,
}

/// One field.
#[derive(Clone, Debug, Default)]
pub struct Field {
    /// From 0 to 1.
    pub share: f64,
    /// The lock that was better, which is shown if the share is less than .95.
    pub winner: String,
    /// Whether the number has a ring behind it.
    pub marked: bool,
}

/// The picture, as the text of an SVG file.
pub fn draw(heat: &Heat) -> Result<String, Undrawable> {
    if heat.panels.iter().all(|panel| panel.rows.is_empty() || panel.columns.is_empty()) {
        return Err(Undrawable("there are no figures that could be shown".into()));
    }
    let head = HEAD_HEIGHT + LINE_HEIGHT * heat.notes.len() as u32;
    let height = head + heat.panels.iter().map(Panel::height).sum::<u32>() + MARGIN as u32;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        root.fill(&GROUND)?;
        root.draw(&Text::new(heat.title.clone(), (MARGIN, 18), text(20, FontStyle::Bold)))?;
        for (line, note) in heat.notes.iter().enumerate() {
            let y = 54 + (LINE_HEIGHT * line as u32) as i32;
            root.draw(&Text::new(note.clone(), (MARGIN, y), text(13, FontStyle::Normal)))?;
        }
        let (_, mut rest) = root.split_vertically(head);
        for panel in &heat.panels {
            let (area, below) = rest.split_vertically(panel.height());
            panel.draw(&area)?;
            rest = below;
        }
        root.present()?;
    }
    Ok(sheet::dressed(&svg, &heat.title, &[]))
}

impl Panel {
    fn height(&self) -> u32 {
        CAPTION_HEIGHT + ROW_HEIGHT * self.rows.len() as u32 + MARGIN as u32
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), Undrawable> {
        let left = MARGIN + (GROUP_WIDTH + NAME_WIDTH) as i32;
        let width = (WIDTH as i32 - MARGIN - left) / self.columns.len().max(1) as i32;
        let centred = |size, style| text(size, style).pos(Pos::new(HPos::Center, VPos::Center));
        area.draw(&Text::new(self.title.clone(), (MARGIN, 6), text(18, FontStyle::Bold)))?;
        area.draw(&Text::new(self.axis.clone(), (MARGIN, 44), text(13, FontStyle::Normal)))?;
        for (column, heading) in self.columns.iter().enumerate() {
            let x = left + width * column as i32 + width / 2;
            area.draw(&Text::new(heading.clone(), (x, 52), centred(13, FontStyle::Bold)))?;
        }
        let mut group = None;
        for (place, row) in self.rows.iter().enumerate() {
            let top = (CAPTION_HEIGHT + ROW_HEIGHT * place as u32) as i32;
            let (middle, bottom) = (top + ROW_HEIGHT as i32 / 2, top + ROW_HEIGHT as i32);
            if group != Some(&row.group) {
                group = Some(&row.group);
                let line = vec![(MARGIN, top), (WIDTH as i32 - MARGIN, top)];
                area.draw(&PathElement::new(line, INK.mix(0.5)))?;
                let style = text(13, FontStyle::Bold).pos(Pos::new(HPos::Left, VPos::Center));
                area.draw(&Text::new(row.group.clone(), (MARGIN, middle), style))?;
            }
            let style = text(12, FontStyle::Normal).pos(Pos::new(HPos::Right, VPos::Center));
            area.draw(&Text::new(row.name.clone(), (left - 8, middle), style))?;
            for (column, field) in row.fields.iter().enumerate() {
                let x = left + width * column as i32;
                let (corners, at) = ([(x, top), (x + width, bottom)], (x + width / 2, middle));
                if let Some(field) = field {
                    let colour = colour(field.share);
                    area.draw(&Rectangle::new(corners, colour.filled()))?;
                    let ink = kept(if field.share < 0.45 { WHITE } else { INK });
                    area.draw(&Text::new(field.words(), at, centred(11, FontStyle::Normal).color(&ink)))?;
                }
                area.draw(&Rectangle::new(corners, GRID.stroke_width(1)))?;
            }
        }
        Ok(())
    }
}

impl Field {
    /// Whether it names the winner.
    pub(crate) fn names_winner(&self) -> bool {
        self.share < NEAR
    }

    fn words(&self) -> String {
        let mark = if self.marked { "°" } else { "" };
        let winner = if self.names_winner() { format!(" {}", self.winner) } else { String::new() };
        format!("{:.2}{mark}{winner}", self.share)
    }
}

/// Blue is good, white is near, orange to brown is bad. People with any kind of colour vision can tell these colours
/// apart.
fn colour(share: f64) -> RGBColor {
    const STOPS: [(f64, [f64; 3]); 5] = [
        (0.0, [0x5c as f64, 0x1f as f64, 0x00 as f64]),
        (0.5, [0xd5 as f64, 0x5e as f64, 0x00 as f64]),
        (0.85, [0xf8 as f64, 0xc4 as f64, 0x7c as f64]),
        (NEAR, [0xff as f64; 3]),
        (1.0, [0x9c as f64, 0xcb as f64, 0xee as f64]),
    ];
    let share = share.clamp(0.0, 1.0);
    let upper = STOPS.iter().position(|(at, _)| share <= *at).unwrap_or(STOPS.len() - 1).max(1);
    let ((from, low), (to, high)) = (STOPS[upper - 1], STOPS[upper]);
    let part = (share - from) / (to - from);
    let channel = |place: usize| (low[place] + (high[place] - low[place]) * part).round() as u8;
    kept(RGBColor(channel(0), channel(1), channel(2)))
}

/// The colour, so that the style sheet does not replace it on a dark page: the last bit of blue makes the difference.
fn kept(colour: RGBColor) -> RGBColor {
    let RGBColor(red, green, blue) = colour;
    if SHADES.iter().any(|shade| shade.light == colour) { RGBColor(red, green, blue ^ 1) } else { colour }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_show_their_share_and_who_was_better() {
        let field = |share| Some(Field { share, winner: "tbb".into(), marked: share < 0.5 });
        let row = |group: &str| Row {
            group: group.into(),
            name: ".25 µs".into(),
            fields: vec![field(0.99), field(0.81), None, field(0.4)],
        };
        let panel = Panel {
            title: "P".into(),
            axis: "threads".into(),
            columns: ["1", "2", "4", "8"].map(str::to_owned).to_vec(),
            rows: vec![row("1 line"), row("1 line"), row("mix")],
        };
        let svg = draw(&Heat { title: "H".into(), notes: vec!["n".into()], panels: vec![panel] }).expect("drawn");
        for words in ["\n0.99\n", "\n0.81 tbb\n", "\n0.40° tbb\n"] {
            assert_eq!(svg.matches(words).count(), 3, "{words:?} in {svg}");
        }
        assert_eq!(svg.matches("\n1 line\n").count(), 1);
        // On a dark page, the numbers in fields stay dark, and the headings become light.
        assert!(svg.contains("<title>H</title>") && svg.contains("prefers-color-scheme:dark"), "{svg}");
        let before =
            |words: &str| svg.split(words).next().and_then(|text| text.rsplit("fill=\"").next()).map(|at| &at[..7]);
        assert_eq!((before("\n0.99\n"), before("\n1 line\n")), (Some("#222223"), Some("#222222")));
    }

    #[test]
    fn nothing_is_an_error() {
        assert!(draw(&Heat::default()).is_err());
    }

    #[test]
    fn colours_go_from_bad_over_white_to_good() {
        assert_eq!((colour(NEAR), colour(0.5)), (RGBColor(255, 255, 254), RGBColor(0xd5, 0x5e, 0)));
        assert_eq!((colour(-1.0), colour(2.0)), (RGBColor(0x5c, 0x1f, 0), RGBColor(0x9c, 0xcb, 0xee)));
    }
}
