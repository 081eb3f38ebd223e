//! Colours and fonts.
//!
//! Each lock has the same colour in every picture. People with any kind of colour vision can distinguish the colours of
//! one [`Stroke`], and those of other projects' locks from ours beside them. All colours can be read on a white
//! background and on a dark one. The tests below compute all of this.
//!
//! There are more locks than such colours: to those of the solid lines, at most four could be added. So the locks that
//! the project's own pictures show have a colour each. Any other lock shares that of its family, and its line has other
//! dashes and other points. In a picture with several such relatives, each has its own.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const FONT: &str = "Helvetica, Arial, sans-serif";

/// A colour on a white background, and its replacement on a dark one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shade {
    pub(super) light: RGBColor,
    pub(super) dark: RGBColor,
}

const fn rgb(hex: u32) -> RGBColor {
    RGBColor((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
}

const fn shade(light: u32, dark: u32) -> Shade {
    Shade { light: rgb(light), dark: rgb(dark) }
}

pub(super) const GROUND: RGBColor = SHADES[0].light;
pub(super) const INK: RGBColor = SHADES[1].light;
pub(super) const FAINT_INK: RGBColor = SHADES[2].light;
pub(super) const GRID: RGBColor = SHADES[3].light;
pub(super) const FAINT_GRID: RGBColor = SHADES[4].light;

/// The colours of everything except locks: background, ink, faint ink, grid, grid without labels.
pub(super) const SHADES: [Shade; 5] = [
    shade(0xffffff, 0x0d1117),
    shade(0x222222, 0xe6edf3),
    shade(0x59636e, 0x9198a1),
    shade(0xd8d8d8, 0x3d444d),
    shade(0xf0f0f0, 0x21262d),
];

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stroke {
    Solid,
    /// A lock that a program must be written for.
    Dashed,
    /// A lock of the same family as another one.
    Dotted,
    /// A further one of the same family.
    Mixed,
}

impl Stroke {
    /// Those of locks of one family, in the order in which they are used.
    const ALL: [Self; 4] = [Self::Solid, Self::Dotted, Self::Mixed, Self::Dashed];

    /// The pattern in a style sheet's syntax.
    pub(super) fn pattern(self) -> Option<&'static str> {
        match self {
            Self::Solid => None,
            Self::Dashed => Some("6 3"),
            Self::Dotted => Some("2 3"),
            Self::Mixed => Some("9 3 2 3"),
        }
    }
}

/// The default locks.
const DEFAULT: Shade = shade(0x0a58ca, 0x58a6ff);
/// The baseline.
const GLIBC: Shade = shade(0x1a1a1a, 0xf0f3f6);
const SHFL: Shade = shade(0x741a6d, 0xa74bff);
const TAS: Shade = shade(0xa96442, 0xfc9800);
const FUTEX: Shade = shade(0x6b59a9, 0x7c77b0);
const TICKET: Shade = shade(0x3701d2, 0xdbb3e1);
const MCS: Shade = shade(0x8c120d, 0xe74122);
const CNA: Shade = shade(0x03856e, 0x448974);
const MCSCR: Shade = shade(0x044f3c, 0x45f678);
const HMCS: Shade = shade(0xcc4810, 0x8cb87c);
const CST: Shade = shade(0x480080, 0xb4fcbc);
/// The colour of a lock without a row below.
const UNKNOWN: Shade = shade(0x6e7781, 0x8b949e);

/// The colour and the stroke of locks that are often in pictures.
const LOCKS: &[(&str, Shade, Stroke)] = &[
    ("glibc", GLIBC, Stroke::Solid),
    ("flash", DEFAULT, Stroke::Solid),
    ("cst-rw", DEFAULT, Stroke::Solid),
    ("shfl", SHFL, Stroke::Solid),
    ("shfl-rw", SHFL, Stroke::Solid),
    ("shfl-spin", SHFL, Stroke::Dotted),
    ("tas", TAS, Stroke::Solid),
    ("hbo", TAS, Stroke::Dotted),
    ("loiter", TAS, Stroke::Dotted),
    ("loiter-cna", TAS, Stroke::Dotted),
    ("futex", FUTEX, Stroke::Solid),
    ("futex-rw", FUTEX, Stroke::Solid),
    ("ticket", TICKET, Stroke::Solid),
    ("qspin", TICKET, Stroke::Dotted),
    ("mcs", MCS, Stroke::Solid),
    ("mcs-tp", MCS, Stroke::Dotted),
    ("clh", MCS, Stroke::Dotted),
    ("hmcs", HMCS, Stroke::Solid),
    ("cna", CNA, Stroke::Solid),
    ("qspin-cna", CNA, Stroke::Dotted),
    ("cst", CST, Stroke::Solid),
    ("c-bo-mcs", CNA, Stroke::Dotted),
    ("c-tkt-tkt", CNA, Stroke::Dotted),
    ("c-ptl-tkt", CNA, Stroke::Dotted),
    ("mcscr", MCSCR, Stroke::Solid),
    ("mcscrn", MCSCR, Stroke::Dotted),
    ("lifo-cr", MCSCR, Stroke::Dotted),
    ("std", shade(0x747409, 0xd7c858), Stroke::Dashed),
    ("parking_lot-0.12", shade(0x110490, 0x967c52), Stroke::Dashed),
    ("parking_lot-0.13", shade(0x5d3b59, 0xf007ad), Stroke::Dashed),
    ("tbb", shade(0x125310, 0x58fea4), Stroke::Dashed),
    ("absl", shade(0x8405f6, 0xa7ff05), Stroke::Dashed),
    ("nsync", shade(0xc24861, 0xe192a3), Stroke::Dashed),
];

/// How a lock is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// The colour in this picture. Locks that share a colour differ in the last bits of blue, so that the style sheet
    /// can distinguish them.
    pub(super) colour: RGBColor,
    pub(super) dark: RGBColor,
    pub(super) stroke: Stroke,
    /// Whether it is emphasised: the default lock and glibc, which readers look for first.
    pub(super) strong: bool,
}

impl Look {
    /// The looks of all locks of a picture.
    pub(super) fn of_all(locks: &[String]) -> Vec<Self> {
        let mut looks: Vec<Self> = Vec::new();
        for lock in locks {
            let mut look = Self::usual(lock);
            let is_taken = |stroke: Stroke| looks.iter().any(|other| (other.dark, other.stroke) == (look.dark, stroke));
            if is_taken(look.stroke) {
                // Such as the same lock with other options.
                look.stroke = Stroke::ALL.into_iter().find(|stroke| !is_taken(*stroke)).unwrap_or(look.stroke);
            }
            let relatives = looks.iter().filter(|other| other.dark == look.dark).count();
            look.colour.2 ^= (relatives % 8) as u8;
            looks.push(look);
        }
        looks
    }

    /// The look of a lock if no other lock in the picture resembles it.
    fn usual(lock: &str) -> Self {
        let name = lock.split(':').next().unwrap_or_default();
        let row = LOCKS.iter().find(|(known, ..)| *known == name);
        let (shade, stroke) = row.map_or((UNKNOWN, Stroke::Solid), |(_, shade, stroke)| (*shade, *stroke));
        let strong = shade == DEFAULT || shade == GLIBC;
        Self { colour: shade.light, dark: shade.dark, stroke, strong }
    }

    pub(super) fn width(&self) -> u32 {
        if self.strong { 3 } else { 2 }
    }

    /// The style of the lock's name.
    pub(super) fn name(&self) -> TextStyle<'_> {
        let weight = if self.strong { FontStyle::Bold } else { FontStyle::Normal };
        text(14, weight).color(&self.colour).pos(Pos::new(HPos::Left, VPos::Center))
    }
}

/// The style of text in the usual colour.
pub(super) fn text(size: i32, weight: FontStyle) -> TextStyle<'static> {
    (FONT, size, weight).into_font().color(&INK)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The minimum difference of two colours, in CIELAB (1976). About 2 can just be seen side by side; a line on its
    /// own needs far more.
    const APART_ENOUGH: f64 = 18.0;
    /// The same for a solid line and a dashed one of one picture.
    const APART_ENOUGH_ACROSS: f64 = 12.0;
    /// The locks of the project that are drawn beside those a program must be written for.
    const BESIDE_OTHERS: [&str; 7] = ["glibc", "flash", "shfl", "tas", "mcs", "cna", "futex"];
    /// The contrast that WCAG 2 requires of small text.
    const READABLE: f64 = 4.5;

    /// Normal vision, and vision without the cones for red, green or blue (Machado, Oliveira and Fernandes, IEEE TVCG
    /// 15(6), 2009, table 1).
    const VISIONS: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ];

    fn linear(colour: RGBColor) -> [f64; 3] {
        [colour.0, colour.1, colour.2].map(|channel| match f64::from(channel) / 255.0 {
            low if low <= 0.04045 => low / 12.92,
            high => ((high + 0.055) / 1.055).powf(2.4),
        })
    }

    fn luminance(colour: RGBColor) -> f64 {
        let [red, green, blue] = linear(colour);
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    fn contrast(one: RGBColor, other: RGBColor) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    /// The CIELAB coordinates of a colour as seen by a vision.
    fn seen(colour: RGBColor, vision: &[[f64; 3]; 3]) -> [f64; 3] {
        let times = |rows: &[[f64; 3]; 3], v: [f64; 3]| rows.map(|row| row[0] * v[0] + row[1] * v[1] + row[2] * v[2]);
        let rgb = times(vision, linear(colour)).map(|channel| channel.clamp(0.0, 1.0));
        let to_xyz = [[0.41246, 0.35758, 0.18044], [0.21267, 0.71515, 0.07217], [0.01933, 0.11919, 0.95030]];
        let xyz = times(&to_xyz, rgb);
        let root = |value: f64| if value > 0.008856 { value.cbrt() } else { 7.787 * value + 16.0 / 116.0 };
        let [x, y, z] = [root(xyz[0] / 0.95047), root(xyz[1]), root(xyz[2] / 1.08883)];
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    fn distance(one: RGBColor, other: RGBColor) -> f64 {
        let of = |vision| {
            let (one, other) = (seen(one, vision), seen(other, vision));
            (0..3).map(|axis| (one[axis] - other[axis]).powi(2)).sum::<f64>().sqrt()
        };
        VISIONS.iter().map(of).fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn colours_of_a_stroke_are_told_apart_by_any_colour_vision() {
        for stroke in [Stroke::Solid, Stroke::Dashed] {
            let mut shades: Vec<Shade> = vec![GLIBC, DEFAULT];
            for &(_, shade, own) in LOCKS {
                if own == stroke && shade != UNKNOWN && !shades.contains(&shade) {
                    shades.push(shade);
                }
            }
            for (place, one) in shades.iter().enumerate() {
                for other in &shades[..place] {
                    let apart = [distance(one.light, other.light), distance(one.dark, other.dark)];
                    assert!(apart.iter().all(|apart| *apart >= APART_ENOUGH), "{one:?} and {other:?}: {apart:?}");
                }
            }
        }
    }

    #[test]
    fn the_locks_of_others_are_told_from_those_beside_them() {
        let shade_of = |name| LOCKS.iter().find(|(known, ..)| *known == name).expect("a row").1;
        for &(name, one, _) in LOCKS.iter().filter(|(.., stroke)| *stroke == Stroke::Dashed) {
            for (beside, other) in BESIDE_OTHERS.map(|beside| (beside, shade_of(beside))) {
                let apart = [distance(one.light, other.light), distance(one.dark, other.dark)];
                assert!(apart.iter().all(|apart| *apart >= APART_ENOUGH_ACROSS), "{name} and {beside}: {apart:?}");
            }
        }
    }

    #[test]
    fn names_and_text_can_be_read_on_both_grounds() {
        let [ground, ink, faint, ..] = SHADES;
        for shade in LOCKS.iter().map(|(_, shade, _)| *shade).chain([ink, faint]) {
            let on = [contrast(shade.light, ground.light), contrast(shade.dark, ground.dark)];
            assert!(on.iter().all(|contrast| *contrast >= READABLE), "{shade:?}: {on:?}");
        }
    }

    #[test]
    fn a_lock_without_a_row_is_drawn_and_resembles_no_other() {
        let looks = Look::of_all(&["null", "rcl", "unheard-of", "mcs"].map(str::to_owned));
        assert!(looks[..3].iter().all(|look| look.dark == UNKNOWN.dark), "{looks:?}");
        for (place, look) in looks.iter().enumerate() {
            assert!(looks[..place].iter().all(|other| other.colour != look.colour), "{looks:?}");
        }
    }

    #[test]
    fn a_lock_looks_the_same_in_every_picture_and_like_no_other_in_its_own() {
        let all = |names: &[&str]| Look::of_all(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let (one, other) = (all(&["glibc", "flash", "mcs"]), all(&["mcs", "cna", "flash"]));
        assert_eq!((one[1], one[2]), (other[2], other[0]));
        assert!(one[0].strong && one[1].strong && !one[2].strong);
        let alike = all(&["mcs:wait=spin", "mcs", "clh", "mcs:wait=park"]);
        assert_eq!(alike.iter().map(|look| look.dark).collect::<Vec<_>>(), vec![one[2].dark; 4]);
        for (place, look) in alike.iter().enumerate() {
            assert!(alike[..place].iter().all(|other| other.colour != look.colour), "{alike:?}");
        }
        for (place, look) in alike.iter().enumerate() {
            assert!(alike[..place].iter().all(|other| other.stroke != look.stroke), "{alike:?}");
        }
    }

    /// Those of `docs/results` with a picture.
    #[test]
    fn every_lock_of_a_picture_of_the_project_has_a_colour_of_its_own() {
        for name in ["hot", "rw-hot", "compare", "programs", "kyoto", "leveldb"] {
            let file = format!("{}/../../docs/results/{name}.json", env!("CARGO_MANIFEST_DIR"));
            let locks = crate::results::Results::read(file.as_ref()).unwrap().locks;
            let looks = Look::of_all(&locks);
            for (place, look) in looks.iter().enumerate() {
                let same = looks[..place].iter().position(|other| other.dark == look.dark);
                assert_eq!(same.map(|same| &locks[same]), None, "{name}: {}", locks[place]);
            }
        }
    }
}
