//! Events of daemons, printed on standard error as messages are.

use crate::outcome::{message, without_numbers};
use canopy_events::{Level, Lines};
use canopy_ingest::Observer;
use canopy_text::safe::message_line;
use std::fmt::Display;
use std::io::Write;

/// Has events printed from now on, by all threads; `about`, if not empty, stands in front of each.
/// In the journal of systemd, lines get the priorities of their events.
pub fn print_events(about: String) {
    let is_journal = is_journal();
    let lines = Lines::new(move |level, line| {
        let line = match about.as_str() {
            "" => line.to_owned(),
            about => format!("{about}: {line}"),
        };
        match is_journal {
            true => {
                let line = without_numbers(&message_line(&line));
                // Where nobody listens there is nothing to say.
                let _ = writeln!(std::io::stderr(), "<{}>canopy: {line}", priority(level));
            }
            false => message(line),
        }
    });
    // A program that hosts several daemons may have a subscriber.
    let _ = tracing::subscriber::set_global_default(lines);
}

/// Makes events of the reports of a daemon.
pub struct EventObserver;

impl Observer for EventObserver {
    fn warn(&self, text: &dyn Display) {
        tracing::warn!("{text}");
    }

    fn note(&self, text: &dyn Display) {
        tracing::info!("{text}");
    }
}

/// Returns whether standard error is the journal's (systemd.exec(5)).
fn is_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let own = rustix::fs::fstat(std::io::stderr());
    own.is_ok_and(|own| stream == format!("{}:{}", own.st_dev, own.st_ino))
}

/// Returns the priority of syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        _ => 6,
    }
}
