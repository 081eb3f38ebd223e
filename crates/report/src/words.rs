//! Names: lists of them in a sentence, and patterns that stand for several.

/// `a`, `a and b`, `a, b and c`.
pub fn listed<S: AsRef<str>>(names: &[S]) -> String {
    let Some((last, first)) = names.split_last() else { return String::new() };
    let first: Vec<&str> = first.iter().map(AsRef::as_ref).collect();
    let and = if first.is_empty() { "" } else { " and " };
    format!("{}{and}{}", first.join(", "), last.as_ref())
}

/// Whether a pattern, in which `any` stands for any text, is of this name.
pub fn fits(pattern: &str, any: char, name: &str) -> bool {
    let mut parts = pattern.split(any);
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_end_with_and() {
        assert_eq!([listed::<&str>(&[]), listed(&["a"]), listed(&["a", "b"])], ["", "a", "a and b"]);
        assert_eq!(listed(&["a", "b", "c"]), "a, b and c");
    }

    #[test]
    fn a_star_stands_for_any_text() {
        let fits = |pattern, name| fits(pattern, '*', name);
        assert!(fits("signals.frozen_*", "signals.frozen_waiter") && fits("a.b", "a.b") && fits("*", "a.b"));
        assert!(fits("a*c*e", "abcde") && fits("a**e", "ae") && fits("*b", "aab"));
        assert!(!fits("signals.frozen", "signals.frozen_waiter") && !fits("signals.frozen_*", "signals.other"));
        assert!(!fits("a*c*e", "aec") && !fits("ab*b", "ab"));
    }
}
