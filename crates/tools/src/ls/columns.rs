//! Names in columns, as ls(1) lays them out: as many columns as fit, each as wide as its widest
//! name and two more.

/// The narrowest column: one character and two spaces.
const WIDTH_MIN: usize = 3;

/// Returns the widths of the columns in which entries of these widths fit into a line. `down` says
/// that columns are filled from top to bottom, not line by line.
pub(super) fn widths(entries: &[usize], line: usize, down: bool) -> Vec<usize> {
    let columns_max = line.div_ceil(WIDTH_MIN).min(entries.len()).max(1);
    let fitting = (2..=columns_max).rev().find_map(|count| {
        let widths = of_columns(entries, count, down);
        let sum: usize = widths.iter().sum();
        // Columns that are all as narrow as can be were chosen to fit.
        (sum < line || sum == count * WIDTH_MIN).then_some(widths)
    });
    fitting.unwrap_or_else(|| of_columns(entries, 1, down))
}

/// Returns the widths of so many columns.
fn of_columns(entries: &[usize], count: usize, down: bool) -> Vec<usize> {
    let mut widths = vec![WIDTH_MIN; count];
    let rows = entries.len().div_ceil(count).max(1);
    for (number, width) in entries.iter().enumerate() {
        let column = if down { number / rows } else { number % count };
        // Nothing follows the last column.
        let full = if column + 1 == count { *width } else { width + 2 };
        widths[column] = widths[column].max(full);
    }
    widths
}

/// Returns what leads from one column of a line to another: tabulators where they fit.
pub(super) fn indent(mut from: usize, to: usize, tab: usize, output: &mut Vec<u8>) {
    while from < to {
        if tab != 0 && to / tab > (from + 1) / tab {
            output.push(b'\t');
            from += tab - from % tab;
        } else {
            output.push(b' ');
            from += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_into_the_line() {
        assert_eq!(widths(&[1, 1, 1], 80, true), [3, 3, 3]);
        assert_eq!(widths(&[50, 50], 80, true), [50]);
        assert_eq!(widths(&[4, 10, 4, 4], 20, true), [12, 4]);
        assert_eq!(widths(&[4, 10, 4, 4], 20, false), [6, 10]);
    }

    #[test]
    fn indents_with_tabulators() {
        let mut output = Vec::new();
        indent(3, 18, 8, &mut output);
        assert_eq!(output, b"\t\t  ");
        output.clear();
        indent(3, 8, 0, &mut output);
        assert_eq!(output, b"     ");
    }
}
