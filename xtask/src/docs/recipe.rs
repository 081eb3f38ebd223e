//! Whether the row that `CONTRIBUTING.md` tells people to add to the catalogue has the facts of the rows that are
//! there, in their order: a macro reads it, and takes no others.

use anyhow::{Context, Result};

use crate::files;
use crate::workspace;

/// The recipe, and the row in it.
const RECIPE: (&str, &str) = ("CONTRIBUTING.md", "(Demo, \"demo\",");
/// The catalogue, and the row of which the recipe's lock is a copy.
const CATALOGUE: (&str, &str) = ("crates/locks/src/catalogue/mutexes.rs", "(Tas, \"tas\",");

/// What is wrong with the recipe.
pub(super) fn faults() -> Result<Vec<String>> {
    let [shown, real] = [RECIPE, CATALOGUE].map(|(file, start)| -> Result<Vec<String>> {
        let text = files::read(&workspace::path(file))?;
        facts(&text, start).with_context(|| format!("{file} has no row '{start} …'"))
    });
    let (shown, real) = (shown?, real?);
    if shown == real {
        return Ok(Vec::new());
    }
    let [shown, real] = [shown, real].map(|facts| facts.join(", "));
    Ok(vec![format!("{}: the row has {shown}; those of {} have {real}", RECIPE.0, CATALOGUE.0)])
}

/// The names of the facts in the row that starts so.
fn facts(text: &str, start: &str) -> Option<Vec<String>> {
    let (_, row) = text.split_once(start)?;
    let (_, row) = row.split_once('{')?;
    let (row, _) = row.split_once("}),")?;
    // Outside the texts that are quoted.
    let words = row.split('"').step_by(2).flat_map(|part| part.split([' ', '\n', ',']));
    Some(words.filter_map(|word| word.strip_suffix(':')).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_in_their_order() {
        let text = "x\n   (Demo, \"demo\", [stp => $crate::a::Demo], {\n  numa: Unaware, title: \"a: b, c: d\",\n  \
                    bytes: 4, claims: [],\n }),\n (Tas, \"tas\", [], { other: 1 }),\n";
        assert_eq!(facts(text, RECIPE.1).expect("a row"), ["numa", "title", "bytes", "claims"]);
        assert_eq!(facts(text, CATALOGUE.1).expect("a row"), ["other"]);
        assert_eq!(facts(text, "(No, "), None);
    }

    #[test]
    fn the_recipe_has_the_facts_of_today() {
        assert_eq!(faults().expect("both files"), [] as [String; 0]);
    }
}
