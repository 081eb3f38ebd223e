//! Colours and fonts.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const FONT: &str = "Helvetica, Arial, sans-serif";
pub(super) const GROUND: RGBColor = WHITE;
pub(super) const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
pub(super) const GRID: RGBColor = RGBColor(0xd8, 0xd8, 0xd8);
pub(super) const FAINT_GRID: RGBColor = RGBColor(0xf0, 0xf0, 0xf0);

/// Colours that people with any kind of colour vision can tell apart (after Okabe and Ito, then Tol). With more locks than
/// colours they come round again, dashed.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x33, 0x22, 0x88),
    RGBColor(0x99, 0x99, 0x33),
    RGBColor(0x88, 0x22, 0x55),
];

/// How a lock is drawn.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub(super) colour: RGBColor,
    pub(super) width: u32,
    pub(super) dashed: bool,
}

impl Look {
    /// Of the lock at this place: the baseline and the first lock are what a reader looks for.
    pub(super) fn of(place: usize) -> Self {
        match place {
            0 => Self { colour: BLACK, width: 3, dashed: false },
            1 => Self { colour: RGBColor(0x00, 0x5a, 0xb5), width: 3, dashed: false },
            _ => {
                let other = place - 2;
                Self { colour: COLOURS[other % COLOURS.len()], width: 2, dashed: other >= COLOURS.len() }
            }
        }
    }

    /// Of the lock's name.
    pub(super) fn name(&self) -> TextStyle<'_> {
        let weight = if self.width > 2 { FontStyle::Bold } else { FontStyle::Normal };
        text(14, weight).color(&self.colour).pos(Pos::new(HPos::Left, VPos::Center))
    }
}

/// Of text in the usual colour.
pub(super) fn text(size: i32, weight: FontStyle) -> TextStyle<'static> {
    (FONT, size, weight).into_font().color(&INK)
}
