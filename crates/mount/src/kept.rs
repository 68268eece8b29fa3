//! Keeps the latest results of queries, in which names are looked up. Open results stay; others are
//! dropped when memory is short.

use crate::node::QueryId;
use canopy_fuse::budget::{Budget, Charge};
use canopy_fuse::results::Hits;
use canopy_model::Credentials;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// How many results stay of one account, and of all.
const OF_ACCOUNT: usize = 16;
const ALL: usize = 256;

/// Memory that those may take that nobody has open.
const BYTES_MAX: usize = 64 << 20;

/// A query, the user who asked, and the results.
struct One {
    query: QueryId,
    who: Credentials,
    account: u32,
    /// Until when names are looked up in it.
    until: Instant,
    hits: Weak<Hits>,
    /// The results, if they stay though nobody has them open.
    held: Option<Arc<Hits>>,
}

pub(crate) struct ResultCache {
    all: Mutex<Vec<One>>,
    budget: Arc<Budget>,
}

impl ResultCache {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        ResultCache { all: Mutex::default(), budget }
    }

    /// Returns the latest results of a query for a user.
    pub(crate) fn get(&self, query: QueryId, who: &Credentials) -> Option<Arc<Hits>> {
        let mut all = self.all.lock();
        forget_old(&mut all);
        all.iter().find(|one| one.query == query && one.who == *who)?.hits.upgrade()
    }

    /// Keeps the results of a query.
    pub(crate) fn add(
        &self,
        query: QueryId,
        account: u32,
        who: &Credentials,
        hits: &Arc<Hits>,
        until: Instant,
    ) {
        let mut all = self.all.lock();
        all.retain(|one| (one.query, &one.who) != (query, who));
        forget_old(&mut all);
        let own = |one: &One| one.account == account;
        if all.iter().filter(|one| own(one)).count() >= OF_ACCOUNT {
            remove_first(&mut all, own);
        }
        if all.len() >= ALL {
            remove_first(&mut all, |_| true);
        }
        let (who, held) = (who.clone(), Some(hits.clone()));
        all.push(One { query, who, account, until, hits: Arc::downgrade(hits), held });
        let held = |all: &[One]| -> usize {
            all.iter().filter_map(|one| one.held.as_ref()).map(|hits| hits.bytes()).sum()
        };
        while held(&all) > BYTES_MAX && let_go(&mut all, |_| true) {}
    }

    /// Has a charge cover so many bytes, if need be at the cost of what nobody has open: of the
    /// account first. Returns whether it does.
    pub(crate) fn cover(&self, charge: &mut Charge, account: u32, bytes: usize) -> bool {
        while !charge.cover(bytes) {
            let mut all = self.all.lock();
            if !let_go(&mut all, |one| one.account == account) && !let_go(&mut all, |_| true) {
                return false;
            }
        }
        true
    }

    /// Drops results that are too old.
    pub(crate) fn forget(&self) {
        forget_old(&mut self.all.lock());
    }

    /// Returns a charge of nothing yet.
    pub(crate) fn charge(&self, account: u32) -> Charge {
        self.budget.charge(account)
    }

    /// Returns how much memory the results of an account may take.
    pub(crate) fn of_account(&self) -> usize {
        self.budget.of_account()
    }
}

fn forget_old(all: &mut Vec<One>) {
    let now = Instant::now();
    all.retain(|one| one.until > now && one.hits.strong_count() > 0);
}

fn remove_first(all: &mut Vec<One>, is_it: impl Fn(&One) -> bool) {
    if let Some(at) = all.iter().position(is_it) {
        all.remove(at);
    }
}

/// Lets go of the oldest results that stay; returns whether there were any.
fn let_go(all: &mut [One], is_it: impl Fn(&One) -> bool) -> bool {
    let oldest = all.iter_mut().find(|one| one.held.is_some() && is_it(one));
    oldest.and_then(|one| one.held.take()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopy_fuse::results::{Findings, FoundFile, RESULTS_MAX};
    use std::time::Duration;

    fn hits(kept: &ResultCache, account: u32, count: usize) -> Option<Arc<Hits>> {
        let mut findings = Findings::new(RESULTS_MAX);
        for number in 0..count {
            let path = number.to_string().into_bytes();
            findings.add(&FoundFile { path, ..FoundFile::default() });
        }
        let mut charge = kept.charge(account);
        let has_room = kept.cover(&mut charge, account, findings.bytes());
        has_room.then(|| Arc::new(findings.into_hits(1).charged(charge)))
    }

    #[test]
    fn open_results_stay_and_others_give_way() {
        let kept = ResultCache::new(Budget::new(8 << 20, 4 << 20));
        let until = Instant::now() + Duration::from_secs(3600);
        let who = |uid| Credentials::new(uid, []);
        let first = hits(&kept, 1, 20_000).expect("room");
        kept.add(QueryId(7), 1, &who(1), &first, until);
        // With it open, there is no room for more, and it is found by its query.
        assert!(hits(&kept, 1, 30_000).is_none());
        assert!(kept.get(QueryId(7), &who(1)).is_some() && kept.get(QueryId(7), &who(2)).is_none());
        assert!(hits(&kept, 2, 10_000).is_some());
        let weak = Arc::downgrade(&first);
        drop(first);
        kept.add(QueryId(8), 1, &who(1), &hits(&kept, 1, 10).expect("room"), until);
        assert!(hits(&kept, 1, 30_000).is_some());
        assert!(weak.upgrade().is_none() && kept.get(QueryId(7), &who(1)).is_none());
    }

    #[test]
    fn one_account_leaves_others_theirs() {
        let kept = ResultCache::new(Budget::new(8 << 20, 4 << 20));
        let until = Instant::now() + Duration::from_secs(3600);
        let who = |uid| Credentials::new(uid, []);
        kept.add(QueryId(7), 2, &who(2), &hits(&kept, 2, 10).expect("room"), until);
        for query in 100..1000 {
            kept.add(
                QueryId(query),
                1,
                &who(query as u32),
                &hits(&kept, 1, 10).expect("room"),
                until,
            );
        }
        assert!(kept.get(QueryId(7), &who(2)).is_some());
        assert_eq!(kept.all.lock().len(), 1 + OF_ACCOUNT);
        let old = hits(&kept, 1, 10).expect("room");
        kept.add(QueryId(7), 2, &who(2), &old, Instant::now());
        assert!(kept.get(QueryId(7), &who(2)).is_none());
    }
}
