//! The table of all figures, and the same as CSV.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    /// Thousand operations a second.
    Thousands,
    /// Million bytes a second.
    Megabytes,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Seconds => "s",
            Unit::Thousands => "k/s",
            Unit::Megabytes => "MB/s",
        }
    }

    /// Returns a count of operations or bytes in this unit.
    pub fn of(self, count: usize) -> f64 {
        match self {
            Unit::Seconds => count as f64,
            Unit::Thousands => count as f64 / 1e3,
            Unit::Megabytes => count as f64 / 1e6,
        }
    }
}

struct Figure {
    section: &'static str,
    name: String,
    unit: Unit,
}

/// Figures in the order in which they were first seen, and their values by directory, one a round.
pub struct Report {
    directories: Vec<String>,
    figures: Vec<Figure>,
    values: BTreeMap<(usize, usize), Vec<f64>>,
    notes: Vec<String>,
    failures: Vec<String>,
    section: &'static str,
    directory: usize,
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() % 2 {
        0 => (sorted[sorted.len() / 2 - 1] + sorted[sorted.len() / 2]) / 2.0,
        _ => sorted[sorted.len() / 2],
    }
}

/// Three digits that count, or more before the point; no more than four after it.
fn number(value: f64) -> String {
    match value {
        _ if value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ if value >= 0.9995 => format!("{value:.2}"),
        _ if value >= 0.09995 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

impl Report {
    pub fn new(directories: Vec<String>) -> Self {
        Report {
            directories,
            figures: Vec::new(),
            values: BTreeMap::new(),
            notes: Vec::new(),
            failures: Vec::new(),
            section: "",
            directory: 0,
        }
    }

    /// Says what the figures that come next belong to.
    pub fn section(&mut self, section: &'static str) {
        self.section = section;
    }

    /// Says whose figures come next.
    pub fn directory(&mut self, name: &str) {
        let at = self.directories.iter().position(|directory| directory == name);
        self.directory = at.expect("the directory is one of those of the report");
    }

    pub fn add(&mut self, name: &str, unit: Unit, value: f64) {
        eprintln!("  {name}: {} {}", number(value), unit.name());
        let section = self.section;
        let known = self.figures.iter().position(|one| one.section == section && one.name == name);
        let figure = known.unwrap_or_else(|| {
            self.figures.push(Figure { section, name: name.into(), unit });
            self.figures.len() - 1
        });
        self.values.entry((figure, self.directory)).or_default().push(value);
    }

    /// Keeps what a reader of the table must know, once.
    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            eprintln!("  {note}");
            self.notes.push(note);
        }
    }

    pub fn failure(&mut self, failure: String) {
        if !self.failures.contains(&failure) {
            self.failures.push(failure);
        }
    }

    pub fn has_failures(&self) -> bool {
        !self.failures.is_empty()
    }

    fn median(&self, figure: usize, directory: usize) -> Option<f64> {
        self.values.get(&(figure, directory)).map(|values| median(values))
    }

    /// Returns medians of the rounds, a line for each figure, with ratios to the first directory.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let mut section = "";
        for (at, figure) in self.figures.iter().enumerate() {
            if figure.section != section {
                section = figure.section;
                let _ = writeln!(text, "\n{section}");
                let heads = self.directories.iter().map(|name| format!("{name:>16}"));
                let _ = writeln!(text, "{:<48}{}", "", heads.collect::<String>());
            }
            let _ = writeln!(text, "{:<48}{}", label(figure), self.cells(at));
        }
        for note in &self.notes {
            let _ = writeln!(text, "\nnote: {note}");
        }
        for failure in &self.failures {
            let _ = writeln!(text, "\nfailed: {failure}");
        }
        text
    }

    fn cells(&self, figure: usize) -> String {
        let first = self.median(figure, 0);
        let cell = |directory| {
            let Some(value) = self.median(figure, directory) else { return format!("{:>16}", "-") };
            let ratio = first.map(|first| format!("{:.2}", value / first));
            format!("{:>8} {:>7}", number(value), format!("({})", ratio.as_deref().unwrap_or("-")))
        };
        (0..self.directories.len()).map(cell).collect()
    }

    /// Writes every value of every round.
    pub fn write_csv(&self, path: &Path) -> std::io::Result<()> {
        let mut text = String::from("directory,section,figure,unit,round,value\n");
        for ((figure, directory), values) in &self.values {
            let Figure { section, name, unit } = &self.figures[*figure];
            let directory = &self.directories[*directory];
            for (round, value) in values.iter().enumerate() {
                let unit = unit.name();
                let _ =
                    writeln!(text, "{directory},\"{section}\",\"{name}\",{unit},{round},{value}");
            }
        }
        std::fs::write(path, text)
    }
}

/// A sync stands below what it follows.
fn label(figure: &Figure) -> String {
    match figure.name.strip_suffix(": sync") {
        Some(_) => "  sync".into(),
        None if figure.unit == Unit::Megabytes => format!("{}, MB", figure.name),
        None => figure.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios_stand_under_the_names_of_directories() {
        let mut report = Report::new(vec!["a".into(), "b".into()]);
        report.section("Table");
        for (directory, values) in [("a", [1.0, 4.0, 2.0]), ("b", [3.0, 3.0, 9.0])] {
            report.directory(directory);
            for value in values {
                report.add("find", Unit::Seconds, value);
            }
        }
        report.add("query", Unit::Seconds, 0.01);
        let table = report.table();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines = Vec::from_iter(table.lines().map(words));
        assert_eq!(
            lines,
            ["", "Table", "a b", "find 2.00 (1.00) 3.00 (1.50)", "query - 0.0100 (-)"]
        );
    }
}
