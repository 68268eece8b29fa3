//! One run of the command line: the values that every command gets.

use crate::interrupt::Interrupt;
use crate::outcome::{Outcome, error_chain, flushed, message, message_lines};
use crate::progress;
use canopy_index::{Index, Moment};
use canopy_ingest::{
    Cancel, Context, DerivedTables, Interrupted, Observer, Progress, now_ns, raise_file_limit,
};
use canopy_scan::threads_max;
use canopy_site::{Opened, Site};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// One run of the command line.
#[derive(Default)]
pub struct Invocation {
    /// The configuration, and the index that `--index` names.
    pub site: Site,
    /// Asks the command to end.
    pub cancel: Cancel,
    interrupt: Interrupt,
    is_quiet: AtomicBool,
    /// Whether an index that was opened shows less than it should.
    lacks_something: AtomicBool,
    /// A warning that is printed when the command ends.
    footer: Mutex<Option<String>>,
    /// Options that asked for more than the site allows, as the user was warned.
    limited: Mutex<BTreeSet<&'static str>>,
}

impl Invocation {
    /// Reads the configuration, and warns of what is wrong in the site's file. `index` is the value
    /// of `--index`. `scans` says whether the command scans sources.
    ///
    /// # Errors
    ///
    /// Those of [`Site::load`].
    pub fn load(index: Option<PathBuf>, scans: bool) -> anyhow::Result<Self> {
        let site = Site::load(index, scans, &message)?;
        Ok(Invocation { site, ..Invocation::default() })
    }

    /// Returns one without a configuration.
    pub fn unconfigured(index: Option<PathBuf>) -> Self {
        Invocation { site: Site::new(Default::default(), index), ..Invocation::default() }
    }

    /// Has [`Invocation::note`] print nothing from now on, and no progress be shown.
    pub fn be_quiet(&self) {
        self.is_quiet.store(true, Ordering::Relaxed);
    }

    /// Prints a message that is worth knowing and no error, unless the user wants none.
    pub fn note(&self, text: impl Display) {
        if !self.is_quiet.load(Ordering::Relaxed) {
            message(text);
        }
    }

    /// Has the command end with a footer.
    pub fn set_footer(&self, footer: String) {
        *self.footer.lock() = Some(footer);
    }

    /// Has signals to end cancel the command from now on.
    ///
    /// # Errors
    ///
    /// Those of [`Interrupt::watch`].
    pub fn watch_signals(&self) -> anyhow::Result<()> {
        self.interrupt.watch(&self.cancel)
    }

    /// Returns the values for a verb that fills an index.
    pub fn ingest<'a>(&'a self, derived: Option<&'a dyn DerivedTables>) -> Context<'a> {
        let clock = now_ns;
        Context { site: &self.site, observer: self, cancel: &self.cancel, clock, derived }
    }

    /// Returns the number of threads: as asked, else as configured, but at most as many as the site
    /// allows.
    pub fn threads(&self, asked: Option<usize>) -> usize {
        let wanted = asked
            .or(self.site.settings.threads)
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
            .clamp(1, 1024);
        let allowed = self.site.allowed().threads;
        self.at_most("--threads", asked.is_some(), Some(wanted), allowed).unwrap_or(wanted)
    }

    /// Returns the number of threads that scan, and raises the limit of open files for them.
    pub fn scan_threads(&self, asked: Option<usize>) -> usize {
        raise_file_limit();
        self.threads(asked).min(threads_max())
    }

    /// Returns the smaller of what is wanted and what is allowed. Warns, once, if an option asks for
    /// more.
    pub fn at_most<T: Copy + Ord>(
        &self,
        option: &'static str,
        is_asked: bool,
        wanted: Option<T>,
        most: Option<T>,
    ) -> Option<T> {
        let Some(most) = most else { return wanted };
        let kept = wanted.map_or(most, |wanted| wanted.min(most));
        if is_asked && wanted != Some(kept) && self.limited.lock().insert(option) {
            message(format_args!(
                "warning: the site allows you less than this {option}, by 'limits' of its \
                 configuration"
            ));
        }
        Some(kept)
    }

    /// Opens the indexes that the command reads, as they were at a moment. Warns, and has the command
    /// end as partial, if they show less than they should.
    ///
    /// # Errors
    ///
    /// If none can be opened.
    pub fn open_indexes(&self, at: Option<Moment>) -> anyhow::Result<Opened> {
        let mut opened = self.site.open_indexes(at)?;
        opened.iter().for_each(|index| self.warn_of_denied_list(index));
        if let Some(error) = opened.failed.take() {
            message_lines(error_chain(&error));
            message(format_args!("{} alone answers", opened.first.path().display()));
            self.lacks_something.store(true, Ordering::Relaxed);
        }
        Ok(opened)
    }

    /// Warns of an index that keeps a list from the caller of entries that only some users see.
    fn warn_of_denied_list(&self, index: &Index) {
        let Some(list) = index.denied_list() else { return };
        message(format_args!(
            "{} cannot be read by you, whom it is for: answers may lack what not everybody sees. The \
             index was copied without its permissions ('canopy index' by whoever writes it makes \
             them right), its file system has no ACLs, or users have other numbers here",
            list.display()
        ));
        self.lacks_something.store(true, Ordering::Relaxed);
    }

    /// Ends the command: flushes standard output and prints the footer. An interrupted command ends
    /// the process by its signal.
    ///
    /// # Errors
    ///
    /// That of the command, or of the output.
    pub fn end(&self, outcome: anyhow::Result<Outcome>) -> anyhow::Result<Outcome> {
        if let Err(error) = &outcome
            && error.is::<Interrupted>()
        {
            message_lines(error_chain(error));
            self.interrupt.end_process();
        }
        let outcome = outcome.and_then(flushed)?;
        if let Some(footer) = self.footer.lock().take() {
            message(footer);
        }
        match outcome {
            Outcome::Complete if self.lacks_something.load(Ordering::Relaxed) => {
                Ok(Outcome::Partial)
            }
            outcome => Ok(outcome),
        }
    }
}

impl Observer for Invocation {
    fn warn(&self, text: &dyn Display) {
        message(text);
    }

    fn note(&self, text: &dyn Display) {
        Invocation::note(self, text);
    }

    fn shows_progress(&self) -> bool {
        !self.is_quiet.load(Ordering::Relaxed) && std::io::stderr().is_terminal()
    }

    fn observe(&self, progress: &dyn Progress, work: &mut dyn FnMut()) {
        match self.is_quiet.load(Ordering::Relaxed) {
            true => work(),
            false => progress::show(progress, work),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_limits_bound_wanted_ones() {
        let invocation = Invocation::default();
        for (wanted, most, kept) in [
            (Some(3), None, Some(3)),
            (None, None, None),
            (None, Some(2), Some(2)),
            (Some(3), Some(2), Some(2)),
            (Some(1), Some(2), Some(1)),
        ] {
            assert_eq!(invocation.at_most("--threads", false, wanted, most), kept);
        }
    }
}
