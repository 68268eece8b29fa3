//! Numbers of things, as people write them.

use std::fmt::Display;

/// Returns a number and what it counts, given one of it: `1 entry`, `2 entries`.
pub fn counted(number: impl Display, one: &str) -> String {
    with_plural(&number.to_string(), one)
}

fn with_plural(number: &str, one: &str) -> String {
    if number == "1" {
        return format!("1 {one}");
    }
    match one.strip_suffix('y') {
        Some(stem) => format!("{number} {stem}ies"),
        None if ["s", "x", "z", "ch", "sh"].iter().any(|end| one.ends_with(end)) => {
            format!("{number} {one}es")
        }
        None => format!("{number} {one}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        let told = |number: u64| ["shard", "entry", "class"].map(|one| counted(number, one));
        assert_eq!(told(0), ["0 shards", "0 entries", "0 classes"]);
        assert_eq!(told(1), ["1 shard", "1 entry", "1 class"]);
        assert_eq!(told(11), ["11 shards", "11 entries", "11 classes"]);
        assert_eq!(counted("1,000", "row"), "1,000 rows");
        // "batchs" stood in what `watch --status` prints.
        let words = ["batch", "match", "hash", "index", "path"].map(|one| counted(2, one));
        assert_eq!(words, ["2 batches", "2 matches", "2 hashes", "2 indexes", "2 paths"]);
    }
}
