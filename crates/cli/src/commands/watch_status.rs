//! `canopy watch --status`: shows the status that the daemon wrote.

use canopy_ingest::now_ns;
use canopy_text::clock::age;
use canopy_text::counted;
use canopy_text::safe::one_line;
use serde_json::Value;
use std::fmt::Write;

/// Returns one line that says how it goes.
pub fn line(document: &Value) -> String {
    let number = |field: &str| document[field].as_f64().unwrap_or(0.0);
    format!(
        "{}, {:.1} s behind, {:.0} events/s, generation {}",
        counted(number("suspects"), "suspect"),
        number("lag_s"),
        number("events_per_s"),
        number("generation"),
    )
}

/// Returns the lines for a terminal.
pub fn text(document: &Value, is_running: bool) -> String {
    let number = |field: &str| document[field].as_f64().unwrap_or(0.0);
    let written_ns = (number("written_s") * 1e9) as i64;
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<12}{value}");
    };
    row("state", state(document, is_running, &age(now_ns() - written_ns)));
    row("lag", format!("{:.1} s", number("lag_s")));
    row(
        "events",
        format!(
            "{:.0}/s, {} in all, {} of them elsewhere",
            number("events_per_s"),
            number("events"),
            number("events_elsewhere")
        ),
    );
    row("suspects", format!("{} wait, {} done", number("suspects"), number("suspects_applied")));
    let hit_rate = match document["cache_hit_rate"].as_f64() {
        Some(rate) => format!("{:.1} % of paths known", rate * 100.0),
        None => "nothing asked yet".to_owned(),
    };
    row("cache", hit_rate);
    row(
        "missed",
        format!(
            "{}, {} not told, {}; all was looked at again",
            counted(number("overflows"), "overflow"),
            counted(number("unresolved"), "path"),
            counted(number("bad_lines"), "bad line")
        ),
    );
    row(
        "requests",
        format!("{} served, {} refused", number("requests_served"), number("requests_refused")),
    );
    let generation = match document["generation"].as_u64() {
        Some(generation) => {
            format!("{generation}, of {}", counted(number("batches"), "batch"))
        }
        None => "none yet".to_owned(),
    };
    row("generation", generation);
    for error in ["deaf", "journal_error", "last_unresolved"] {
        if let Some(error) = document[error].as_str() {
            row("error", one_line(error));
        }
    }
    for point in document["unfollowed"].as_array().into_iter().flatten() {
        row("unfollowed", one_line(point.as_str().unwrap_or_default()));
    }
    rows_of_sources(document, &mut row);
    text
}

/// Adds a row for each change log, source and namespace that is followed.
fn rows_of_sources(document: &Value, row: &mut dyn FnMut(&str, String)) {
    for log in document["change_logs"].as_array().into_iter().flatten() {
        let name = one_line(log["log"].as_str().unwrap_or_default());
        let shown = match log["record"].as_u64() {
            Some(record) => format!("{name}: in the index up to record {record}"),
            None => format!("{name}: nothing known to be in the index"),
        };
        row("change log", shown);
    }
    for source in document["sources"].as_array().into_iter().flatten() {
        let root = canopy_read::to_path(source["root"].as_str().unwrap_or_default());
        let mut shown = format!(
            "{}: {}, {:.1} s behind",
            one_line(&root.display().to_string()),
            counted(&source["suspects"], "suspect"),
            source["lag_s"].as_f64().unwrap_or(0.0)
        );
        if let Some(error) = source["last_error"].as_str() {
            let _ = write!(shown, "; {}", one_line(error));
        }
        row("source", shown);
    }
    for namespace in document["namespaces"].as_array().into_iter().flatten() {
        let path = canopy_read::to_path(namespace["namespace"].as_str().unwrap_or_default());
        let mut shown = one_line(&path.display().to_string());
        match namespace["followed_s"].as_f64() {
            Some(at_s) => {
                let ago = document["written_s"].as_f64().unwrap_or(0.0) - at_s;
                let _ = write!(shown, ": the index has what it had {ago:.1} s before");
            }
            None => shown.push_str(": not in the index yet"),
        }
        if let Some(error) = namespace["last_error"].as_str() {
            let _ = write!(shown, "; {}", one_line(error));
        }
        row("namespace", shown);
    }
}

fn state(document: &Value, is_running: bool, age: &str) -> String {
    let method = document["method"].as_str().unwrap_or_default();
    if is_running {
        return format!("running, by {method}, pid {}", document["pid"]);
    }
    match document["ended"].as_bool() {
        Some(true) => format!("stopped {age} ago"),
        _ => format!("not running; it has not told anything for {age}"),
    }
}
