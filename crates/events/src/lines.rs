//! A subscriber that makes one line of each event.

use std::fmt::{Debug, Write};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Passes events of Canopy, from `INFO` up, on as lines: the message, and then fields as
/// `name=value`. Control characters become `?`, as texts may come from users. Spans are ignored.
pub struct Lines<F> {
    print: F,
}

impl<F: Fn(Level, &str) + Send + Sync + 'static> Lines<F> {
    /// Returns a subscriber that calls `print` with the level and the line of each event.
    pub fn new(print: F) -> Self {
        Lines { print }
    }
}

impl<F: Fn(Level, &str) + Send + Sync + 'static> Subscriber for Lines<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Libraries that Canopy uses report to programmers.
        metadata.is_event()
            && *metadata.level() <= Level::INFO
            && metadata.target().starts_with("canopy")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let text: String = line.message.chars().chain(line.fields.chars()).map(printable).collect();
        (self.print)(*event.metadata().level(), &text);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn printable(c: char) -> char {
    if c.is_control() { '?' } else { c }
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing into a text cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn an_event_is_one_line() {
        let lines = Arc::<Mutex<Vec<(Level, String)>>>::default();
        let own = lines.clone();
        let subscriber =
            Lines::new(move |level, line| own.lock().unwrap().push((level, line.to_owned())));
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(uid = 7, path = "a b", "served\nagain");
            tracing::debug!("not shown");
            tracing::error!(target: "hyper", "not ours");
            let span = tracing::info_span!("request");
            span.in_scope(|| tracing::warn!("late"));
        });
        let expected = [
            (Level::INFO, "served?again uid=7 path=\"a b\"".to_owned()),
            (Level::WARN, "late".to_owned()),
        ];
        assert_eq!(lines.lock().unwrap()[..], expected);
    }
}
