//! Suggests known names for an unknown name.

use strsim::{jaro_winkler, osa_distance};

/// A name may be abbreviated to its first letters if there are at least so many.
const BEGINNING: usize = 3;

/// The known name nearest to `word`, if it is near: one or two typing errors, regardless of case. Else a name that
/// starts with it.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let known: Vec<&str> = known.into_iter().collect();
    let slips = (word.chars().count() / 3).clamp(1, 3);
    let near = known.iter().filter_map(|&name| {
        let distance = osa_distance(&word, &name.to_lowercase());
        (distance <= slips && distance < name.chars().count()).then_some((distance, name))
    });
    let alike = |name: &str| (jaro_winkler(&word, name) * 1e6) as u64;
    let nearest = near.min_by_key(|(distance, name)| (*distance, u64::MAX - alike(name))).map(|(_, name)| name);
    let begun = || known.iter().copied().find(|name| word.len() >= BEGINNING && name.starts_with(&word));
    nearest.or_else(begun)
}

/// `did you mean 'NAME'?`, or nothing.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(word, known).map(|name| format!("did you mean '{name}'?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_near_and_other_words_are_not() {
        let known = ["tas", "mcs", "mcs-tp", "mcscr", "shfl", "shfl-spin", "flash", "glibc"];
        for (word, meant) in [
            ("mcx", Some("mcs")),
            ("SHFL", Some("shfl")),
            ("Flsah", Some("flash")),
            ("mcs-cr", Some("mcscr")),
            ("shflspin", Some("shfl-spin")),
            ("glib", Some("glibc")),
            ("gli", Some("glibc")),
            ("shfl-sp", Some("shfl-spin")),
            ("fl", None),
            ("x", None),
            ("", None),
            ("malthusian", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
    }
}
