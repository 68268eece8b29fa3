//! Finding the greatest version of a manifest by asking for names, where listings are not of one
//! moment (`Storage::has_ordered_listings`).
//!
//! Versions are counted from 1, and each is created after the one before. A collector removes versions
//! below the current one, but for **landmarks** of the current version *c*: the powers of two, and
//! *c* with any number of its low bits cleared. A landmark of *c* stays one until *c* has passed all
//! versions that begin with its bits, so a collector that slept removes none either.
//!
//! Let *v* be a version that was created, and b one of its zero bits. Then q(b), which is *v* with b
//! set and all lower bits cleared, is a landmark of every *c* from q(b) up to the next q; and the
//! ranges of these q follow each other without a gap from *v* + 1 on. So if *v* is not the greatest,
//! one of them is there. They are asked for from the lowest bit up. Versions only grow, so if all are
//! missing, *v* was the greatest when the first was asked for. If one is there, so is a version at
//! least as great: go on from that one. Powers of two are never removed, so a missing one above *v* is
//! the last to ask for. An old version that somebody who slept created again deceives nobody: there
//! is a greater one.

use crate::error::Result;

/// Returns whether `version` stays although `current` has replaced it.
pub fn is_landmark(version: u64, current: u64) -> bool {
    let zeros = version.trailing_zeros();
    version.is_power_of_two() || version > 0 && current >> zeros << zeros == version
}

/// Returns a version that was the greatest one at some moment since the call, 0 if there was none.
/// `known` was created before, or is 0. Asks for some 10 names if `known` is the greatest one of a
/// thousand, and for more if it is old.
///
/// # Errors
///
/// Fails as `exists` does.
pub fn greatest(known: u64, mut exists: impl FnMut(u64) -> Result<bool>) -> Result<u64> {
    let mut version = known;
    'from: loop {
        for bit in (0..u64::BITS).filter(|bit| version >> bit & 1 == 0) {
            let landmark = (version >> bit | 1) << bit;
            if exists(landmark)? {
                version = landmark;
                continue 'from;
            }
            if landmark.is_power_of_two() {
                break;
            }
        }
        return Ok(version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Takes the steps of others between two questions from `choices`, which then gets the next ones.
    struct World {
        current: u64,
        there: BTreeSet<u64>,
        choices: Vec<(usize, usize)>,
        at: usize,
    }

    const LAST: u64 = 8;

    impl World {
        fn new(choices: Vec<(usize, usize)>) -> Self {
            World { current: 0, there: BTreeSet::new(), choices, at: 0 }
        }

        /// Returns one of `count` numbers, another one in each run.
        fn choose(&mut self, count: usize) -> usize {
            if self.at == self.choices.len() {
                self.choices.push((0, count));
            }
            self.at += 1;
            assert_eq!(
                self.choices[self.at - 1].1,
                count,
                "the same choices lead to the same state"
            );
            self.choices[self.at - 1].0
        }

        fn commit(&mut self) {
            self.current += 1;
            self.there.insert(self.current);
        }

        /// Removes all that collectors may, who read any version as the current one.
        fn collect(&mut self, keeps: impl Fn(u64, u64) -> bool) {
            let goes = self.garbage(keeps);
            self.there.retain(|version| !goes.contains(version));
        }

        fn garbage(&self, keeps: impl Fn(u64, u64) -> bool) -> BTreeSet<u64> {
            let later = |version: u64| version + 1..=self.current;
            let goes = |version: &u64| later(*version).any(|read| !keeps(*version, read));
            self.there.iter().copied().filter(goes).collect()
        }

        /// Others commit some versions, and collect or not.
        fn others(&mut self, keeps: impl Fn(u64, u64) -> bool) {
            let commits = self.choose((LAST - self.current + 1) as usize);
            (0..commits).for_each(|_| self.commit());
            if !self.garbage(&keeps).is_empty() && self.choose(2) == 1 {
                self.collect(keeps);
            }
        }
    }

    /// Runs `once` with all choices. Returns how often, or nothing if it was false once.
    fn explore(mut once: impl FnMut(&mut World) -> bool) -> Option<usize> {
        let (mut choices, mut runs) = (Vec::new(), 0);
        loop {
            let mut world = World::new(choices);
            runs += 1;
            if !once(&mut world) {
                return None;
            }
            choices = world.choices;
            while choices.last().is_some_and(|(chosen, count)| chosen + 1 == *count) {
                choices.pop();
            }
            match choices.last_mut() {
                Some((chosen, _)) => *chosen += 1,
                None => return Some(runs),
            }
        }
    }

    /// Returns whether a search from any version that was created, known or not, finds one that was
    /// the greatest meanwhile.
    fn finds(
        begin: u64,
        keeps: impl Fn(u64, u64) -> bool + Copy,
    ) -> impl FnMut(&mut World) -> bool {
        move |world| {
            (0..begin).for_each(|_| world.commit());
            world.collect(keeps);
            // Somebody who slept creates one again.
            let again = world.choose(begin.max(1) as usize) as u64;
            world.there.extend(Some(again).filter(|version| *version > 0));
            let known = world.choose(begin as usize + 1) as u64;
            let before = world.current;
            let found = greatest(known, |version| {
                let is_there = world.there.contains(&version);
                world.others(keeps);
                Ok(is_there)
            });
            (before..=world.current).contains(&found.unwrap())
        }
    }

    #[test]
    fn the_greatest_version_is_found_whatever_others_do() {
        let runs = (0..=LAST).map(|begin| explore(finds(begin, is_landmark)).expect("found"));
        let runs = runs.sum::<usize>();
        assert!(runs > 10_000, "{runs}");
    }

    #[test]
    fn every_rule_is_needed() {
        // Without powers of two; without prefixes; with fewer of them.
        let rules: [fn(u64, u64) -> bool; 4] = [
            |_, _| false,
            |version, current| is_landmark(version, current) && !version.is_power_of_two(),
            |version, _| version.is_power_of_two(),
            |version, current| is_landmark(version, current) && version % 4 != 2,
        ];
        for (at, rule) in rules.into_iter().enumerate() {
            let is_found = (0..=LAST).all(|begin| explore(finds(begin, rule)).is_some());
            assert!(!is_found, "rule {at}");
        }
    }

    #[test]
    fn few_versions_stay_and_few_names_are_asked_for() {
        for current in [1, 2, 1000, 1 << 20, (1 << 20) - 1, 123_456_789] {
            let kept = (1..=current.min(1 << 20)).filter(|one| is_landmark(*one, current)).count();
            assert!(kept <= 60, "{current}: {kept}");
            let (mut asked, top) = (0, u64::BITS - current.leading_zeros());
            let there = |version: u64| version <= current && is_landmark(version, current);
            let found = greatest(current, |version| {
                asked += 1;
                Ok(there(version))
            });
            assert_eq!(found.unwrap(), current);
            assert!(asked <= top + 1, "{current}: {asked}");
            assert_eq!(greatest(0, |version| Ok(there(version))).unwrap(), current);
            assert_eq!(greatest(1, |version| Ok(there(version))).unwrap(), current);
        }
    }
}
