//! Bars for shares, in text.

/// Returns a bar for a part of a whole, in so many columns for all of it; something is shown of all
/// but nothing. `ascii` is for terminals that have no blocks.
pub fn bar(share: f64, columns: usize, ascii: bool) -> String {
    let eighths = (share * (columns * 8) as f64).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    if ascii {
        return "#".repeat(eighths.div_ceil(8));
    }
    let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    "█".repeat(eighths / 8) + part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_shares() {
        assert_eq!(bar(0.0, 20, false), "");
        assert_eq!(bar(0.0001, 20, false), "▏");
        assert_eq!(bar(1.0, 20, false).chars().count(), 20);
        assert_eq!(bar(0.5, 20, true), "#".repeat(10));
        assert_eq!(bar(0.0001, 20, true), "#");
    }
}
