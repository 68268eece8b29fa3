//! Numbers of servers as they are shown.

/// Returns numbers in their order as ranges: `0-3,5`.
pub fn ranges(numbers: &[u32]) -> String {
    let mut ranges = Vec::<(u32, u32)>::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let shown = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    let shown = Vec::from_iter(shown).join(",");
    if shown.is_empty() { "none".to_owned() } else { shown }
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn neighbours_are_shown_as_ranges() {
        for (numbers, expected) in [
            (&[][..], "none"),
            (&[3], "3"),
            (&[0, 1, 2, 3], "0-3"),
            (&[0, 2, 3, 7], "0,2-3,7"),
            (&[u32::MAX - 1, u32::MAX], "4294967294-4294967295"),
        ] {
            assert_eq!(ranges(numbers), expected);
        }
    }
}
