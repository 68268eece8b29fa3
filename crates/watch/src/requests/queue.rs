//! Waiting requests, and the credit of each user.
//!
//! Listing is charged: each entry, and each second as a number of entries. A user has a credit that
//! fills up slowly; a user who has none left is refused. Users take turns. When requests are listed
//! together, each is charged the cost of its own directories, and a share of the time in proportion
//! to it.
//!
//! Requests that fail together are retried one by one, so that a directory that takes too long, or
//! cannot be listed, fails alone. The charge for the first try comes with the retry, which shows
//! whose it is.

use super::protocol::Answer;
use canopy_model::Generation;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The credit of a user who has not asked for anything, in entries.
const CREDIT_MAX: f64 = 300_000.0;

/// Credit that comes back in a second, in entries.
const CREDIT_PER_SECOND: f64 = 1_000.0;

/// Charge for a second of listing, in entries.
const SECOND_IN_ENTRIES: f64 = 10_000.0;

/// Cost of opening a directory besides its entries, in entries.
const LISTING_IN_ENTRIES: u64 = 10;

/// Directories that are listed together, and those of them that are one user's.
const ROUND_MAX: usize = 256;
const ROUND_OF_USER_MAX: usize = 16;

/// Time to wait for other requests, too.
const GATHERED_FOR: Duration = Duration::from_millis(100);

/// Time after which failed requests are retried.
const RETRIED_AFTER: Duration = Duration::from_secs(5);

/// Where an answer will be. Once nobody holds it, the request is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Slip {
    answer: Mutex<Option<Answer>>,
    told: Condvar,
}

impl Slip {
    fn reply(&self, answer: Answer) {
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

/// A directory that a user asks to be listed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedDirectory {
    /// Its absolute path.
    pub path: Vec<u8>,
    /// Whether whoever asks may list the directory above, too, which has its row.
    pub with_row: bool,
}

#[derive(Debug)]
struct Request {
    asked: RequestedDirectory,
    /// The root that it is in, by number.
    source: usize,
    slip: Weak<Slip>,
    /// When it may be listed.
    due: Instant,
    /// Whether it failed before, and is tried alone.
    is_alone: bool,
    /// How often it was tried without a charge.
    unpaid: u32,
}

impl Request {
    fn is_wanted(&self) -> bool {
        self.slip.strong_count() > 0
    }

    fn reply(&self, answer: Answer) {
        if let Some(slip) = self.slip.upgrade() {
            slip.reply(answer);
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
    pub fn asked(&self) -> impl Iterator<Item = &RequestedDirectory> {
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
        asked: RequestedDirectory,
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
        let (is_alone, unpaid) = (false, 0);
        user.waiting.push_back(Request { asked, source, slip: weak, due, is_alone, unpaid });
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
    pub(crate) fn succeeded(
        &mut self,
        round: Round,
        generation: Generation,
        cost: &Cost,
        now: Instant,
    ) {
        self.charge(&round, cost, now);
        self.counts.served += round.requests.len() as u64;
        for (_, request) in round.requests {
            request.reply(Answer::Updated(generation));
        }
    }

    /// Ends a round that failed. Requests that may succeed alone or later are queued again.
    pub(crate) fn end_failed_round(
        &mut self,
        round: Round,
        failure: Failure,
        took: Duration,
        now: Instant,
    ) {
        let is_alone = round.requests.len() == 1;
        if is_alone {
            self.charge(&round, &Cost { shares: Vec::new(), took }, now);
        }
        for (uid, request) in round.requests.into_iter().rev() {
            let due = match failure {
                Failure::TooLong(time) if is_alone => {
                    self.counts.refused += 1;
                    request.reply(Answer::TooLong(time));
                    continue;
                }
                Failure::Other if is_alone => now + RETRIED_AFTER,
                _ => now,
            };
            let unpaid = if is_alone { 0 } else { request.unpaid + 1 };
            let request = Request { due, is_alone: true, unpaid, ..request };
            self.user(uid, now).waiting.push_front(request);
        }
    }

    /// Charges each request of a round what was listed for it, and for tries before that as much
    /// each.
    fn charge(&mut self, round: &Round, cost: &Cost, now: Instant) {
        let share = |at: usize| cost.shares.get(at).copied().unwrap_or_default();
        let weights: Vec<f64> = (0..round.requests.len()).map(|at| share(at).weight()).collect();
        let all: f64 = weights.iter().sum();
        for (at, (uid, request)) in round.requests.iter().enumerate() {
            let seconds = cost.took.as_secs_f64() * weights[at] / all;
            let once = share(at).entries as f64 + seconds * SECOND_IN_ENTRIES;
            self.user(*uid, now).credit -= once * f64::from(1 + request.unpaid);
        }
    }
}

/// The listings made for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Directories, or parts of large ones.
    pub listings: u64,
    /// Entries in them.
    pub entries: u64,
}

impl Share {
    /// Returns the part of the time that it is charged, beside others.
    fn weight(self) -> f64 {
        (1 + self.entries + self.listings * LISTING_IN_ENTRIES) as f64
    }
}

/// Cost of a round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cost {
    /// The listings made for each request, in their order.
    pub(crate) shares: Vec<Share>,
    pub(crate) took: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture {
        queue: Queue,
        now: Instant,
    }

    impl Fixture {
        fn new() -> Self {
            Fixture { queue: Queue::default(), now: Instant::now() }
        }

        fn ask(&mut self, uid: u32, path: &str, source: usize) -> Arc<Slip> {
            self.try_to_ask(uid, path, source).unwrap()
        }

        fn try_to_ask(&mut self, uid: u32, path: &str, source: usize) -> Result<Arc<Slip>, Answer> {
            let asked = RequestedDirectory { path: path.into(), with_row: true };
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

    fn answer_of(slip: &Slip) -> Option<Answer> {
        slip.wait(Duration::ZERO)
    }

    fn shown(round: &Round) -> Vec<String> {
        let of = |(uid, request): &(u32, Request)| {
            format!("{uid}:{}", String::from_utf8_lossy(&request.asked.path))
        };
        round.requests.iter().map(of).collect()
    }

    /// Computes the cost of requests with these numbers of entries.
    fn cost(entries: &[u64], seconds: u64) -> Cost {
        let share = |&entries: &u64| Share { listings: 1, entries };
        let shares = entries.iter().map(share).collect();
        Cost { shares, took: Duration::from_secs(seconds) }
    }

    #[test]
    fn users_take_turns() {
        let mut place = Fixture::new();
        let many: Vec<_> = (0..100).map(|at| place.ask(1, &format!("/a/{at}"), 0)).collect();
        let (other, third) = (place.ask(2, "/b", 0), place.ask(3, "/c", 1));
        assert!(place.queue.due(place.now) > Some(place.now), "others may ask, too");
        place.pass(1);
        let round = place.take().unwrap();
        assert_eq!(round.requests.len(), 17);
        assert!(shown(&round).contains(&"2:/b".to_owned()));
        assert_eq!((answer_of(&many[0]), answer_of(&other)), (None, None));
        place.queue.succeeded(round, Generation(7), &cost(&[1; 17], 1), place.now);
        assert_eq!(
            (answer_of(&many[0]), answer_of(&other)),
            (Some(Answer::Updated(Generation(7))), Some(Answer::Updated(Generation(7))))
        );
        assert_eq!((answer_of(&many[16]), answer_of(&third)), (None, None));
        // The one whose turn it is, and of another root.
        let round = place.take().unwrap();
        assert_eq!((shown(&round), round.source), (vec!["3:/c".to_owned()], 1));
        assert_eq!(place.queue.counts.served, 17);
    }

    #[test]
    fn a_user_without_credit_waits_for_more() {
        let mut place = Fixture::new();
        let slip = place.ask(1, "/large", 0);
        place.pass(1);
        let round = place.take().unwrap();
        place.queue.succeeded(round, Generation(1), &cost(&[400_000], 20), place.now);
        assert_eq!(answer_of(&slip), Some(Answer::Updated(Generation(1))));
        let Err(Answer::Spent(time)) = place.try_to_ask(1, "/large", 0) else { panic!() };
        assert_eq!(time, Duration::from_secs(301), "300,000 of 600,000 are missing");
        place.ask(3, "/other", 0);
        place.pass(301);
        place.ask(1, "/large", 0);
        // A user whose credit is full again is forgotten.
        place.pass(1_000);
        assert_eq!(place.queue.due(place.now), None);
        assert!(place.queue.users.is_empty());
    }

    /// A regression: the user who asked for 15 small directories beside a large one paid 15/16 of
    /// it.
    #[test]
    fn each_request_is_charged_for_its_own_directories() {
        let mut place = Fixture::new();
        let _large = place.ask(1, "/large", 0);
        let _small: Vec<_> = (0..15).map(|at| place.ask(2, &format!("/small/{at}"), 0)).collect();
        place.pass(1);
        let round = place.take().unwrap();
        let entries: Vec<u64> =
            round.requests.iter().map(|(uid, _)| if *uid == 1 { 200_000 } else { 5 }).collect();
        assert_eq!(entries.len(), 16);
        place.queue.succeeded(round, Generation(1), &cost(&entries, 20), place.now);
        let left = |uid: u32| place.queue.users[&uid].credit;
        // 15 times 5 entries, and of 20 s as much as 16 of 200,251.
        let small = 75.0 + 20.0 * 10_000.0 * 15.0 * 16.0 / 200_251.0;
        assert!((CREDIT_MAX - left(2) - small).abs() < 1.0, "{}", left(2));
        assert!((CREDIT_MAX - left(1) - (400_075.0 - small)).abs() < 1.0, "{}", left(1));
    }

    /// The time of a round that failed was shared by all who had asked.
    #[test]
    fn a_request_that_fails_alone_pays_for_the_failure_of_all() {
        let mut place = Fixture::new();
        let _slips = [place.ask(1, "/large", 0), place.ask(2, "/small", 0)];
        place.pass(1);
        let round = place.take().unwrap();
        let time = Duration::from_secs(10);
        place.queue.end_failed_round(round, Failure::TooLong(time), time, place.now);
        let small = place.take().unwrap();
        place.queue.succeeded(small, Generation(2), &cost(&[5], 0), place.now);
        let large = place.take().unwrap();
        place.queue.end_failed_round(large, Failure::TooLong(time), time, place.now);
        let left = |uid: u32| CREDIT_MAX - place.queue.users[&uid].credit;
        assert_eq!((left(1), left(2)), (200_000.0, 10.0));
    }

    #[test]
    fn requests_that_fail_together_are_tried_alone() {
        let mut place = Fixture::new();
        let slips = [place.ask(1, "/large", 0), place.ask(2, "/small", 0)];
        place.pass(1);
        let limit = Duration::from_secs(30);
        let round = place.take().unwrap();
        assert_eq!(round.requests.len(), 2);
        place.queue.end_failed_round(round, Failure::TooLong(limit), limit, place.now);
        // The one whose turn it was not.
        let round = place.take().unwrap();
        assert_eq!(shown(&round), ["2:/small"]);
        place.queue.succeeded(round, Generation(2), &cost(&[1], 1), place.now);
        let round = place.take().unwrap();
        assert_eq!(shown(&round), ["1:/large"]);
        place.queue.end_failed_round(round, Failure::TooLong(limit), limit, place.now);
        assert_eq!(answer_of(&slips[0]), Some(Answer::TooLong(limit)));
        assert_eq!(answer_of(&slips[1]), Some(Answer::Updated(Generation(2))));
        assert_eq!(place.queue.counts, Counts { served: 1, refused: 1 });
    }

    #[test]
    fn postponed_requests_are_done_while_somebody_waits() {
        let mut place = Fixture::new();
        let slip = place.ask(1, "/a", 0);
        place.pass(1);
        let round = place.take().unwrap();
        place.queue.end_failed_round(round, Failure::Other, Duration::ZERO, place.now);
        assert!(place.take().is_none());
        place.pass(5);
        let round = place.take().unwrap();
        place.queue.end_failed_round(round, Failure::Other, Duration::ZERO, place.now);
        assert_eq!(answer_of(&slip), None);
        drop(slip);
        place.pass(5);
        assert_eq!(place.queue.due(place.now), None);
        assert!(place.take().is_none());
    }
}
