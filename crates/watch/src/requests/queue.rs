//! Requests that wait, and what each user may still ask for.
//!
//! Listing is charged: so many entries, and as many again for each second that it took. A user has
//! a credit that fills up slowly; who has none left is refused. Users take turns, and those whose
//! requests are listed together share the charge by the number of their directories.
//!
//! What fails together is tried again one by one, so that a directory that takes too long, or cannot
//! be listed, fails alone.

use super::protocol::Answer;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The credit of a user who has not asked for anything, in entries.
const CREDIT_MAX: f64 = 300_000.0;

/// What comes back of it in a second.
const CREDIT_PER_SECOND: f64 = 1_000.0;

/// What a second of listing is charged as, in entries.
const SECOND_IN_ENTRIES: f64 = 10_000.0;

/// Directories that are listed together, and those of them that are one user's.
const ROUND_MAX: usize = 256;
const ROUND_OF_USER_MAX: usize = 16;

/// How long is waited for others to ask, too.
const GATHERED_FOR: Duration = Duration::from_millis(100);

/// When what failed is tried again.
const RETRIED_AFTER: Duration = Duration::from_secs(5);

/// Where an answer will be. Once nobody holds it, the request is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Slip {
    answer: Mutex<Option<Answer>>,
    told: Condvar,
}

impl Slip {
    fn tell(&self, answer: Answer) {
        *self.answer.lock() = Some(answer);
        self.told.notify_all();
    }

    /// Waits for the answer.
    pub(crate) fn wait(&self, limit: Duration) -> Option<Answer> {
        let mut answer = self.answer.lock();
        if answer.is_none() {
            self.told.wait_for(&mut answer, limit);
        }
        *answer
    }
}

/// A directory that somebody wants to have listed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its absolute path.
    pub path: Vec<u8>,
    /// Whether whoever asks may list the directory above, too, which has its row.
    pub with_row: bool,
}

#[derive(Debug)]
struct Request {
    asked: Asked,
    /// The root that it is in, by number.
    source: usize,
    slip: Weak<Slip>,
    /// When it may be listed.
    due: Instant,
    /// Whether it failed before.
    is_alone: bool,
}

impl Request {
    fn is_wanted(&self) -> bool {
        self.slip.strong_count() > 0
    }

    fn tell(&self, answer: Answer) {
        if let Some(slip) = self.slip.upgrade() {
            slip.tell(answer);
        }
    }
}

#[derive(Debug)]
struct User {
    waiting: VecDeque<Request>,
    /// In entries; below zero where more was listed than was left.
    credit: f64,
    counted: Instant,
}

impl User {
    fn new(now: Instant) -> Self {
        User { waiting: VecDeque::new(), credit: CREDIT_MAX, counted: now }
    }

    fn count(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.counted);
        let earned = passed.as_secs_f64() * CREDIT_PER_SECOND;
        self.credit = (self.credit + earned).min(CREDIT_MAX);
        self.counted = now;
    }
}

/// Requests of one source that are listed together.
#[derive(Debug)]
pub struct Round {
    /// The root, by number.
    pub source: usize,
    requests: Vec<(u32, Request)>,
}

impl Round {
    /// Returns the directories.
    pub fn asked(&self) -> impl Iterator<Item = &Asked> {
        self.requests.iter().map(|(_, request)| &request.asked)
    }
}

/// Why a round failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It was given up after this time.
    TooLong(Duration),
    /// Something else, that may go better next time.
    Other,
}

/// How many requests there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those that were served.
    pub served: u64,
    /// All others.
    pub refused: u64,
}

/// All that wait.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    users: BTreeMap<u32, User>,
    /// The user whose turn it was last.
    last: u32,
    pub(crate) counts: Counts,
}

impl Queue {
    /// Adds a request of a user; returns where its answer will be, or the answer.
    pub(crate) fn add(
        &mut self,
        uid: u32,
        asked: Asked,
        source: usize,
        now: Instant,
    ) -> Result<Arc<Slip>, Answer> {
        let user = self.user(uid, now);
        if user.credit <= 0.0 {
            let missing = 1.0 - user.credit / CREDIT_PER_SECOND;
            return Err(Answer::Spent(Duration::from_secs_f64(missing)));
        }
        let slip = Arc::<Slip>::default();
        let due = now + GATHERED_FOR;
        let weak = Arc::downgrade(&slip);
        user.waiting.push_back(Request { asked, source, slip: weak, due, is_alone: false });
        Ok(slip)
    }

    fn user(&mut self, uid: u32, now: Instant) -> &mut User {
        let user = self.users.entry(uid).or_insert_with(|| User::new(now));
        user.count(now);
        user
    }

    /// Returns when the first of those that wait is due.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Instant> {
        for user in self.users.values_mut() {
            user.waiting.retain(Request::is_wanted);
            user.count(now);
        }
        self.users.retain(|_, user| !user.waiting.is_empty() || user.credit < CREDIT_MAX);
        self.users.values().flat_map(|user| &user.waiting).map(|request| request.due).min()
    }

    /// Takes out what is listed next.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Round> {
        // Those that others are waited for need no longer wait once one of them need not.
        let is_due = |request: &Request| {
            let gathered_for = if request.is_alone { Duration::ZERO } else { GATHERED_FOR };
            request.due <= now + gathered_for && request.is_wanted()
        };
        let behind = (Bound::Excluded(self.last), Bound::Unbounded);
        let order = self.users.range(behind).chain(self.users.range(..=self.last));
        let order: Vec<u32> = order.map(|(&uid, _)| uid).collect();
        let mut round: Option<Round> = None;
        for uid in order {
            let Some(user) = self.users.get_mut(&uid) else { continue };
            let mut own = 0;
            let mut kept = VecDeque::with_capacity(user.waiting.len());
            for request in std::mem::take(&mut user.waiting) {
                let fits = match &round {
                    None => true,
                    Some(round) => {
                        !request.is_alone
                            && !round.requests[0].1.is_alone
                            && round.source == request.source
                            && round.requests.len() < ROUND_MAX
                    }
                };
                if !fits || own == ROUND_OF_USER_MAX || !is_due(&request) {
                    kept.push_back(request);
                    continue;
                }
                if round.is_none() {
                    self.last = uid;
                }
                own += 1;
                let source = request.source;
                let new = || Round { source, requests: Vec::new() };
                round.get_or_insert_with(new).requests.push((uid, request));
            }
            user.waiting = kept;
        }
        round
    }

    /// Tells those who asked that their directories are in a generation.
    pub(crate) fn succeeded(&mut self, round: Round, generation: u64, cost: Cost, now: Instant) {
        self.charge(&round, cost, now);
        self.counts.served += round.requests.len() as u64;
        for (_, request) in round.requests {
            request.tell(Answer::Updated(generation));
        }
    }

    /// Has those wait again that may fare better alone, or later.
    pub(crate) fn failed(&mut self, round: Round, failure: Failure, cost: Cost, now: Instant) {
        self.charge(&round, cost, now);
        let is_alone = round.requests.len() == 1;
        for (uid, request) in round.requests.into_iter().rev() {
            let due = match failure {
                Failure::TooLong(time) if is_alone => {
                    self.counts.refused += 1;
                    request.tell(Answer::TooLong(time));
                    continue;
                }
                Failure::Other if is_alone => now + RETRIED_AFTER,
                _ => now,
            };
            let request = Request { due, is_alone: true, ..request };
            self.user(uid, now).waiting.push_front(request);
        }
    }

    fn charge(&mut self, round: &Round, cost: Cost, now: Instant) {
        let all = cost.entries as f64 + cost.took.as_secs_f64() * SECOND_IN_ENTRIES;
        let share = all / round.requests.len().max(1) as f64;
        for (uid, _) in &round.requests {
            self.user(*uid, now).credit -= share;
        }
    }
}

/// What a round took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) entries: u64,
    pub(crate) took: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        queue: Queue,
        now: Instant,
    }

    impl Place {
        fn new() -> Self {
            Place { queue: Queue::default(), now: Instant::now() }
        }

        fn ask(&mut self, uid: u32, path: &str, source: usize) -> Arc<Slip> {
            self.try_to_ask(uid, path, source).unwrap()
        }

        fn try_to_ask(&mut self, uid: u32, path: &str, source: usize) -> Result<Arc<Slip>, Answer> {
            let asked = Asked { path: path.into(), with_row: true };
            self.queue.add(uid, asked, source, self.now)
        }

        fn pass(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
        }

        fn take(&mut self) -> Option<Round> {
            self.queue.due(self.now);
            self.queue.take(self.now)
        }
    }

    fn told(slip: &Slip) -> Option<Answer> {
        slip.wait(Duration::ZERO)
    }

    fn shown(round: &Round) -> Vec<String> {
        let of = |(uid, request): &(u32, Request)| {
            format!("{uid}:{}", String::from_utf8_lossy(&request.asked.path))
        };
        round.requests.iter().map(of).collect()
    }

    fn cost(entries: u64, seconds: u64) -> Cost {
        Cost { entries, took: Duration::from_secs(seconds) }
    }

    #[test]
    fn users_take_turns() {
        let mut place = Place::new();
        let many: Vec<_> = (0..100).map(|at| place.ask(1, &format!("/a/{at}"), 0)).collect();
        let (other, third) = (place.ask(2, "/b", 0), place.ask(3, "/c", 1));
        assert!(place.queue.due(place.now) > Some(place.now), "others may ask, too");
        place.pass(1);
        let round = place.take().unwrap();
        assert_eq!(round.requests.len(), 17);
        assert!(shown(&round).contains(&"2:/b".to_owned()));
        assert_eq!((told(&many[0]), told(&other)), (None, None));
        place.queue.succeeded(round, 7, cost(10, 1), place.now);
        assert_eq!(
            (told(&many[0]), told(&other)),
            (Some(Answer::Updated(7)), Some(Answer::Updated(7)))
        );
        assert_eq!((told(&many[16]), told(&third)), (None, None));
        // The one whose turn it is, and of another root.
        let round = place.take().unwrap();
        assert_eq!((shown(&round), round.source), (vec!["3:/c".to_owned()], 1));
        assert_eq!(place.queue.counts.served, 17);
    }

    #[test]
    fn who_has_spent_the_credit_waits_for_more() {
        let mut place = Place::new();
        let slips = [place.ask(1, "/large", 0), place.ask(2, "/small", 0)];
        place.pass(1);
        let round = place.take().unwrap();
        place.queue.succeeded(round, 1, cost(1_000_000, 20), place.now);
        assert!(slips.iter().all(|slip| told(slip) == Some(Answer::Updated(1))));
        let Err(Answer::Spent(time)) = place.try_to_ask(1, "/large", 0) else { panic!() };
        assert_eq!(time, Duration::from_secs(301), "300,000 were left of 600,000");
        place.ask(3, "/other", 0);
        place.pass(301);
        place.ask(1, "/large", 0);
        // Whoever has all the credit is forgotten.
        place.pass(1_000);
        assert_eq!(place.queue.due(place.now), None);
        assert!(place.queue.users.is_empty());
    }

    #[test]
    fn what_fails_together_is_tried_alone() {
        let mut place = Place::new();
        let slips = [place.ask(1, "/large", 0), place.ask(2, "/small", 0)];
        place.pass(1);
        let limit = Duration::from_secs(30);
        let round = place.take().unwrap();
        assert_eq!(round.requests.len(), 2);
        place.queue.failed(round, Failure::TooLong(limit), cost(0, 30), place.now);
        // The one whose turn it was not.
        let round = place.take().unwrap();
        assert_eq!(shown(&round), ["2:/small"]);
        place.queue.succeeded(round, 2, cost(1, 1), place.now);
        let round = place.take().unwrap();
        assert_eq!(shown(&round), ["1:/large"]);
        place.queue.failed(round, Failure::TooLong(limit), cost(0, 30), place.now);
        assert_eq!(told(&slips[0]), Some(Answer::TooLong(limit)));
        assert_eq!(told(&slips[1]), Some(Answer::Updated(2)));
        assert_eq!(place.queue.counts, Counts { served: 1, refused: 1 });
    }

    #[test]
    fn what_cannot_be_done_now_is_done_later_while_somebody_waits() {
        let mut place = Place::new();
        let slip = place.ask(1, "/a", 0);
        place.pass(1);
        let round = place.take().unwrap();
        place.queue.failed(round, Failure::Other, Cost::default(), place.now);
        assert!(place.take().is_none());
        place.pass(5);
        let round = place.take().unwrap();
        place.queue.failed(round, Failure::Other, Cost::default(), place.now);
        assert_eq!(told(&slip), None);
        drop(slip);
        place.pass(5);
        assert_eq!(place.queue.due(place.now), None);
        assert!(place.take().is_none());
    }
}
