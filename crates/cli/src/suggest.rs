//! Suggests known names for an unknown name.

use flashlock_native::settings::nearest;

/// `did you mean 'NAME'?`, or nothing.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(word, known).map(|name| format!("did you mean '{name}'?"))
}
