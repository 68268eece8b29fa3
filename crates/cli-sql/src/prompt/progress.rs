//! How far a long query is, on standard error if that is a terminal, until the first row is
//! printed.

use canopy_sql::{Progress, Running};
use canopy_text::counted;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a query may take before anything is shown.
const PATIENCE: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(200);

/// The display of one statement. It goes away with the first byte of the answer, or when it is
/// dropped.
pub struct Display {
    shown: Arc<Mutex<Option<Shown>>>,
}

/// The thread that draws, and what ends it.
struct Shown {
    _end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Display {
    /// Shows the statement that a session will work on. Does nothing where standard error is not a
    /// terminal.
    pub fn start(running: Running) -> Self {
        let shown = std::io::stderr().is_terminal().then(|| {
            let (end, ended) = channel();
            Shown { _end: end, thread: std::thread::spawn(move || draw(&running, &ended)) }
        });
        Display { shown: Arc::new(Mutex::new(shown)) }
    }

    /// A writer in front of that of the answer.
    pub fn before<W>(&self, inner: W) -> Before<W> {
        Before { shown: Some(self.shown.clone()), inner }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        end(&self.shown);
    }
}

/// Ends a display, and returns when nothing of it is left on the screen.
fn end(shown: &Mutex<Option<Shown>>) {
    let shown = shown.lock().take();
    if let Some(Shown { _end, thread }) = shown {
        drop(_end);
        // A display that failed has nothing on the screen either.
        let _ = thread.join();
    }
}

/// Ends a display before anything is written.
pub struct Before<W> {
    shown: Option<Arc<Mutex<Option<Shown>>>>,
    inner: W,
}

impl<W: Write> Write for Before<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(shown) = self.shown.take() {
            end(&shown);
        }
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

fn draw(running: &Running, ended: &Receiver<()>) {
    let begun = Instant::now();
    let mut bar = None;
    let wait = |time| matches!(ended.recv_timeout(time), Err(RecvTimeoutError::Timeout));
    let mut time = PATIENCE;
    while wait(time) {
        time = INTERVAL;
        let Some(progress) = running.progress() else { continue };
        let bar: &mut ProgressBar = bar.get_or_insert_with(spinner);
        bar.set_message(text(progress, begun.elapsed()));
        bar.tick();
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg}").expect("the template is valid");
    ProgressBar::new_spinner().with_style(style)
}

fn text(progress: Progress, elapsed: Duration) -> String {
    let Progress { rows, begun, units } = progress;
    let seconds = elapsed.as_secs();
    format!(
        "{seconds} s, {begun} of {} of the index begun, {} read",
        counted(units, "piece"),
        counted(HumanCount(rows), "row")
    )
}
