//! # Similar names: what the user may have meant
//!
//! Suggests a known name for an unknown one. Allocates nothing, because the preload library uses it, too.

/// The longest word that is compared, in bytes. Known names are shorter.
const LONGEST: usize = 40;
/// A name may be abbreviated to its first letters if there are at least so many.
const BEGINNING: usize = 3;

/// The known name nearest to `word`, if it is near: one to three typing errors, depending on the length of `word`,
/// regardless of case. Of several, the one that begins most like it. Else the first name that starts with it.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.as_bytes();
    let slips = (word.len() / 3).clamp(1, 3);
    let (mut best, mut begun) = (None, None);
    for name in known {
        let letters = name.as_bytes();
        let common = word.iter().zip(letters).take_while(|(one, other)| one.eq_ignore_ascii_case(other)).count();
        if common == word.len() && common >= BEGINNING {
            begun = begun.or(Some(name));
        }
        let Some(errors) = typing_errors(word, letters) else { continue };
        let rank = (errors, usize::MAX - common);
        if errors <= slips && errors < letters.len() && best.is_none_or(|(other, _)| rank < other) {
            best = Some((rank, name));
        }
    }
    best.map(|(_, name)| name).or(begun)
}

/// How many letters are superfluous, missing, wrong, or exchanged with their neighbour (the optimal string alignment
/// distance), regardless of case. `None` if one of the words is too long. Never inlined: one copy serves all lists.
#[inline(never)]
fn typing_errors(word: &[u8], name: &[u8]) -> Option<usize> {
    if word.len() > LONGEST || name.len() > LONGEST {
        return None;
    }
    // The errors between a beginning of `word` and each beginning of `name`: of the current beginning of `word`, of the
    // one before, and of the one before that.
    let mut last: [u8; LONGEST + 1] = core::array::from_fn(|length| length as u8);
    let mut before = last;
    for (row, letter) in word.iter().enumerate() {
        let mut this = [0; LONGEST + 1];
        this[0] = row as u8 + 1;
        for (column, other) in name.iter().enumerate() {
            let wrong = last[column] + u8::from(!letter.eq_ignore_ascii_case(other));
            let mut least = wrong.min(last[column + 1] + 1).min(this[column] + 1);
            if row > 0
                && column > 0
                && letter.eq_ignore_ascii_case(&name[column - 1])
                && word[row - 1].eq_ignore_ascii_case(other)
            {
                least = least.min(before[column - 1] + 1);
            }
            this[column + 1] = least;
        }
        (before, last) = (last, this);
    }
    Some(usize::from(last[name.len()]))
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
        assert_eq!(nearest(&"x".repeat(300), known), None);
    }

    #[test]
    fn errors_are_counted() {
        let count = |word: &str, name: &str| typing_errors(word.as_bytes(), name.as_bytes());
        for (word, name, errors) in
            [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("ABC", "abc", 0), ("acb", "abc", 1), ("bca", "abc", 2)]
        {
            assert_eq!(count(word, name), Some(errors), "{word} {name}");
        }
        let longest = "x".repeat(LONGEST);
        assert_eq!(count(&longest, &"y".repeat(LONGEST)), Some(LONGEST));
        assert_eq!(count(&longest, &"y".repeat(LONGEST + 1)), None);
    }
}
