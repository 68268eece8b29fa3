//! The table of all figures, and the same as CSV.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Name of each figure, and its number of digits after the point.
const FIGURES: &[(&str, &str, usize)] = &[
    ("load_k", "load: thousand records a second", 0),
    ("load_cpu_s", "  CPU seconds", 1),
    ("load_wa", "  bytes written / logical bytes", 2),
    ("load_most_ms", "  longest batch of 1,000, ms", 1),
    ("load_runs", "  runs that a look-up asks", 0),
    ("load_mb", "  memory, MB", 0),
    ("compact_k", "compaction of all: thousand records a second", 0),
    ("compact_cpu_s", "  CPU seconds", 1),
    ("compact_mb", "  memory, MB", 0),
    ("merge_k", "merge of 8 runs: thousand records a second", 0),
    ("merge_mb", "  memory (all 8 made of records in it), MB", 0),
    ("bytes_a_record", "bytes on disk a record, compacted", 1),
    ("get_k", "look-ups, compacted: thousand a second", 0),
    ("get_cpu_us", "  CPU us each", 3),
    ("absent_k", "  of absent keys", 0),
    ("absent_cpu_us", "  CPU us each", 3),
    ("scan_k", "scan of all: thousand records a second", 0),
    ("scan_cpu_us", "  CPU us each", 3),
    ("list_k", "listing of directories: thousand records a second", 0),
    ("list_cpu_us", "  CPU us each", 3),
    ("begin_k", "first 20 of a directory: thousand a second", 1),
    ("begin_cpu_us", "  CPU us each", 3),
    ("read_mb", "  memory of all reading, MB", 0),
    ("update_k", "random updates: thousand a second", 0),
    ("update_p50_us", "  median, us", 2),
    ("update_p99_us", "  p99, us", 1),
    ("update_p999_us", "  p99.9, us", 1),
    ("update_most_us", "  longest, us", 0),
    ("update_stalls", "  longer than 100 ms", 0),
    ("update_wa", "  bytes written / logical bytes", 2),
    ("update_cpu_s", "  CPU seconds", 1),
    ("update_runs", "  runs that a look-up asks at the end", 0),
    ("update_mb", "  memory, MB", 0),
    ("get_dirty_k", "look-ups right after: thousand a second", 0),
    ("get_dirty_cpu_us", "  CPU us each", 3),
    ("absent_dirty_k", "  of absent keys", 0),
    ("absent_dirty_cpu_us", "  CPU us each", 3),
    ("change_k", "random partial updates: thousand a second", 0),
    ("change_p50_us", "  median, us", 2),
    ("change_p99_us", "  p99, us", 1),
    ("change_p999_us", "  p99.9, us", 1),
    ("change_most_us", "  longest, us", 0),
    ("change_stalls", "  longer than 100 ms", 0),
    ("change_wa", "  bytes written / logical bytes of whole records", 2),
    ("change_cpu_s", "  CPU seconds", 1),
    ("change_runs", "  runs that a look-up asks at the end", 0),
    ("change_mb", "  memory, MB", 0),
    ("disk_gb", "most bytes on disk, GB", 2),
    ("log_records_k", "recovery: thousand records in the log", 0),
    ("log_gb", "  log on disk, GB", 2),
    ("recovery_s", "  time to open, s", 2),
    ("recovery_mb", "  memory, MB", 0),
    ("seconds", "all of it, s", 0),
];

/// Values of each figure of each engine, one a round.
#[derive(Default)]
pub struct Report(BTreeMap<(String, String), Vec<f64>>);

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() % 2 {
        0 => (sorted[sorted.len() / 2 - 1] + sorted[sorted.len() / 2]) / 2.0,
        _ => sorted[sorted.len() / 2],
    }
}

impl Report {
    pub fn add(&mut self, engine: &str, figure: &str, value: f64) {
        self.0.entry((engine.into(), figure.into())).or_default().push(value);
    }

    fn of(&self, engine: &str, figure: &str) -> Option<&[f64]> {
        self.0.get(&(engine.to_string(), figure.to_string())).map(Vec::as_slice)
    }

    /// Returns medians of the rounds, a line for each figure.
    pub fn table(&self, engines: &[String]) -> String {
        let mut text = String::new();
        let heads = engines.iter().map(|engine| format!("{engine:>10}"));
        let _ = writeln!(text, "{:<52}{}", "", heads.collect::<String>());
        for (figure, what, digits) in FIGURES {
            let cells = Vec::from_iter(engines.iter().map(|one| self.of(one, figure).map(median)));
            if cells.iter().all(Option::is_none) {
                continue;
            }
            let cells = cells.into_iter().map(|cell| match cell {
                Some(value) => format!("{value:>10.digits$}"),
                None => format!("{:>10}", "-"),
            });
            let _ = writeln!(text, "{what:<52}{}", cells.collect::<String>());
        }
        text
    }

    /// Writes every value of every round.
    pub fn write_csv(&self, path: &Path) -> std::io::Result<()> {
        let mut text = String::from("engine,figure,round,value\n");
        for ((engine, figure), values) in &self.0 {
            for (round, value) in values.iter().enumerate() {
                let _ = writeln!(text, "{engine},{figure},{round},{value}");
            }
        }
        std::fs::write(path, text)
    }
}
