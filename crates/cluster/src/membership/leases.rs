//! Leases: objects by whose numbers a process shows that it lives, and what an observer makes of
//! them.
//!
//! An observer decides by its own monotonic clock, and by its own looks at storage. The time without a
//! new number adds up only over looks that succeeded, each adding at most [`Timing::gap_max`]. So an
//! observer that slept, or whose storage did not answer, starts with almost nothing: when storage
//! comes back after a minute, nobody is declared dead at once.

use super::map::{Applied, ProcessId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Names of all leases begin so. They lie in one directory, so that one listing finds all, and no
/// directories of processes that are gone stay behind.
pub(super) const PREFIX: &str = "cluster/lease/";

/// Numbers of a process that stay, with the newest. A listing that is not of one moment finds one of
/// them, unless it takes as long as so many renewals.
pub(super) const KEPT: u64 = 3;

/// Lengths of time, which follow from that of a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// Length of a lease.
    pub(crate) lease: Duration,
}

impl Timing {
    /// Returns the time between two renewals.
    pub(crate) fn renew_every(self) -> Duration {
        self.lease / 3
    }

    /// Returns the time between two looks at storage.
    pub(crate) fn look_every(self) -> Duration {
        self.lease / 5
    }

    /// Returns the time between two looks while another process stops a server.
    pub(crate) fn look_often(self) -> Duration {
        (self.lease / 50).max(Duration::from_millis(5))
    }

    /// Returns how long a process goes on with a server that the map gives to another one. Until then
    /// that one has seen the map, and waits.
    pub(crate) fn stop_after(self) -> Duration {
        self.look_every() + self.look_often()
    }

    /// Returns the time without a new number after which a lease has ended for its observers. Clocks
    /// that differ by less than a tenth agree that its process' own lease has ended before.
    pub(crate) fn ended_after(self) -> Duration {
        self.lease + self.lease / 10
    }

    /// Returns the most time that one look adds to the time without a new number.
    pub(crate) fn gap_max(self) -> Duration {
        self.look_every() * 2
    }

    /// Returns the time after which objects of a process that is not in the map are removed.
    pub(crate) fn stray_after(self) -> Duration {
        self.lease * 20
    }
}

/// A renewal of a lease, which is an object's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Renewal {
    /// Process that lives.
    pub(crate) process: ProcessId,
    /// Number of the renewal, counted from 1.
    pub(crate) number: u64,
    /// Newest version of the map that the process has carried out: it runs no server that an older
    /// version gave it and this one did not.
    pub(crate) applied: u64,
}

impl Renewal {
    /// Returns the name of the object.
    pub(crate) fn name(self) -> String {
        let Renewal { process, number, applied } = self;
        format!("{PREFIX}{process}-{number:020}-{applied:020}")
    }

    /// Returns the renewal that has this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let process = ProcessId(u64::from_str_radix(parts.next()?, 16).ok()?);
        let (number, applied) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let renewal = Renewal { process, number, applied };
        (renewal.name() == name).then_some(renewal)
    }
}

/// An observer's knowledge of one lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed {
    newest: Renewal,
    /// Number of renewals that came while it was observed.
    pub(crate) news: u64,
    /// Time without a new number, as far as it counts.
    pub(crate) quiet: Duration,
    /// Moment until which `quiet` was added up.
    until: Duration,
    /// Moment when the newest number was found.
    found: Duration,
}

/// An observer's knowledge of all leases.
#[derive(Default)]
pub(crate) struct Observations {
    leases: BTreeMap<ProcessId, Observed>,
}

impl Observations {
    /// Takes the renewals that a look found, which began and ended at these moments. `expected` are
    /// processes whose leases must be there.
    pub(crate) fn look(
        &mut self,
        timing: Timing,
        (began, ended): (Duration, Duration),
        renewals: &[Renewal],
        expected: impl Iterator<Item = ProcessId>,
    ) {
        let mut newest = BTreeMap::<ProcessId, Renewal>::new();
        for process in expected {
            newest.insert(process, Renewal { process, number: 0, applied: 0 });
        }
        for renewal in renewals {
            let known = newest.entry(renewal.process).or_insert(*renewal);
            *known = (*known).max(*renewal);
        }
        self.leases.retain(|process, _| newest.contains_key(process));
        for (process, newest) in newest {
            let first =
                Observed { newest, news: 0, quiet: Duration::ZERO, until: ended, found: ended };
            let lease = match self.leases.get_mut(&process) {
                None => {
                    self.leases.insert(process, first);
                    continue;
                }
                Some(lease) => lease,
            };
            if newest.number > lease.newest.number {
                *lease = Observed { news: lease.news + 1, ..first };
            } else {
                lease.quiet += began.saturating_sub(lease.until).min(timing.gap_max());
                lease.until = began.max(lease.until);
            }
        }
    }

    /// Returns the knowledge of a process.
    pub(crate) fn of(&self, process: ProcessId) -> Option<&Observed> {
        self.leases.get(&process)
    }

    /// Returns the moment when the newest number of a process was found, if it has renewed its lease.
    pub(crate) fn found(&self, process: ProcessId) -> Option<Duration> {
        self.of(process).filter(|lease| lease.newest.number > 0).map(|lease| lease.found)
    }

    /// Returns whether the lease of a process has ended.
    pub(crate) fn has_ended(&self, timing: Timing, process: ProcessId) -> bool {
        self.of(process).is_some_and(|lease| lease.quiet >= timing.ended_after())
    }

    /// Returns the processes whose objects have been without use for so long that they may go.
    pub(crate) fn strays(&self, timing: Timing) -> impl Iterator<Item = ProcessId> {
        let is_stray = move |one: &&Observed| one.quiet >= timing.stray_after();
        self.leases.values().filter(is_stray).map(|one| one.newest.process)
    }

    /// Returns the newest versions of the map that processes have carried out.
    pub(crate) fn applied(&self) -> Applied {
        self.leases.iter().map(|(process, lease)| (*process, lease.newest.applied)).collect()
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.leases.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: Timing = Timing { lease: Duration::from_secs(10) };

    fn renewal(number: u64) -> Renewal {
        Renewal { process: ProcessId(7), number, applied: 0 }
    }

    /// Looks at moments in seconds, which take no time, and returns whether the lease has ended.
    fn ends(looks: &[(u64, u64)]) -> bool {
        let mut observations = Observations::default();
        for (at, number) in looks {
            let at = Duration::from_secs(*at);
            observations.look(TIMING, (at, at), &[renewal(*number)], std::iter::empty());
        }
        observations.has_ended(TIMING, ProcessId(7))
    }

    #[test]
    fn a_lease_ends_after_looks_without_a_new_number() {
        assert!(!ends(&[(0, 1), (3, 1), (6, 1), (9, 1)]));
        assert!(ends(&[(0, 1), (3, 1), (6, 1), (9, 1), (11, 1)]));
        assert!(!ends(&[(0, 1), (3, 1), (6, 1), (9, 2), (12, 2)]));
    }

    #[test]
    fn an_observer_that_slept_counts_little_of_it() {
        // Each look adds 4 s at most.
        assert!(!ends(&[(0, 1), (1000, 1)]));
        assert!(!ends(&[(0, 1), (1000, 1), (2000, 1)]));
        assert!(ends(&[(0, 1), (1000, 1), (2000, 1), (3000, 1)]));
    }

    #[test]
    fn a_look_that_takes_long_does_not_count() {
        let mut observations = Observations::default();
        for at in [(0, 8), (8, 12), (12, 14), (14, 16)] {
            let at = (Duration::from_secs(at.0), Duration::from_secs(at.1));
            observations.look(TIMING, at, &[renewal(1)], std::iter::empty());
            assert!(!observations.has_ended(TIMING, ProcessId(7)), "{at:?}");
        }
    }

    #[test]
    fn a_process_without_any_object_is_observed_too() {
        let mut observations = Observations::default();
        for at in 0..=11 {
            let at = Duration::from_secs(at);
            observations.look(TIMING, (at, at), &[], [ProcessId(7)].into_iter());
        }
        assert!(observations.has_ended(TIMING, ProcessId(7)));
    }

    #[test]
    fn older_numbers_that_are_listed_beside_it_change_nothing() {
        let mut observations = Observations::default();
        for (at, numbers) in [(0, [4, 5]), (1, [5, 4]), (2, [3, 4])] {
            let at = Duration::from_secs(at);
            let renewals = numbers.map(renewal);
            observations.look(TIMING, (at, at), &renewals, std::iter::empty());
        }
        assert_eq!(observations.of(ProcessId(7)).unwrap().quiet, Duration::from_secs(2));
    }

    #[test]
    fn names_are_parsed_strictly() {
        let renewal = Renewal { process: ProcessId(u64::MAX), number: 7, applied: 9 };
        assert_eq!(Renewal::parse(&renewal.name()), Some(renewal));
        for name in [
            "cluster/lease/7-7-9",
            "cluster/lease/000000000000000a-00000000000000000007",
            "cluster/lease/000000000000000A-00000000000000000007-00000000000000000009",
            "cluster/lease/000000000000000a-00000000000000000007-00000000000000000009-",
            "cluster/lease/",
        ] {
            assert_eq!(Renewal::parse(name), None, "{name}");
        }
    }
}
