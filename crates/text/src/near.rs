//! How far texts are apart: for suggestions of words that were meant.

/// Returns how many characters have to be added, removed, replaced or swapped with their neighbour
/// to make one text the other one (optimal string alignment). Costs time by the product of their
/// lengths.
pub fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before_last = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (row, of_a) in a.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, of_b) in b.iter().enumerate() {
            let replaced = last[column] + usize::from(of_a != of_b);
            let mut least = replaced.min(last[column + 1] + 1).min(next[column] + 1);
            if row > 0 && column > 0 && *of_a == b[column - 1] && a[row - 1] == *of_b {
                let swapped: &Vec<usize> = &before_last;
                least = least.min(swapped[column - 1] + 1);
            }
            next.push(least);
        }
        before_last = std::mem::replace(&mut last, next);
    }
    last[b.len()]
}

/// Returns whether somebody who wrote one word may have meant the other: it is a beginning of at
/// least three characters, or has one wrong character of three, or two of six.
pub fn is_near(known: &str, written: &str) -> bool {
    let length = written.chars().count();
    let wrong_max = match length {
        ..3 => 0,
        3..6 => 1,
        _ => 2,
    };
    (length >= 3 && known.starts_with(written)) || distance(known, written) <= wrong_max
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_have_few_wrong_characters() {
        for (a, b, expected) in [
            ("", "", 0),
            ("abc", "", 3),
            ("index", "idnex", 1),
            ("index", "indx", 1),
            ("scan", "man", 2),
            ("sizes", "users", 4),
            ("full", "follow", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
        for (known, written, near) in [
            ("index", "idnex", true),
            ("report", "reprot", true),
            ("duplicates", "dup", true),
            ("man", "scan", false),
            ("users", "sizes", false),
            ("follow", "full", false),
            ("ls", "l", false),
            ("du", "df", false),
            ("DU", "DU", true),
        ] {
            assert_eq!(is_near(known, written), near, "{known} {written}");
        }
    }
}
