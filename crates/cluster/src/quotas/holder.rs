//! A server's side: it enforces its shares, and asks for more.

use super::{
    AUTHORITY, Obtained, ServerQuotas, ShareMessage, ShareReply, ShareRequest, as_recorded,
    by_rules,
};
use crate::error::{Error, Result};
use crate::message::{Request, Response, Sender, ServerRequest};
use crate::peers::Peers;
use crate::server::Server;
use canopy_namespace::quota::{Account, Notice, Pledge, Shortage};
use canopy_partition::{Collected, Grant, Round, ServerId};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pauses between two tries of a change: the first one, and the longest.
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// A change does not wait longer than this for room that others are about to use.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Time within which the authority asks for the outcome of counting. Later it is that of an older attempt.
const FAILURE_TIME: Duration = Duration::from_secs(2);

/// Accounts in one message about usage.
pub(super) const PAGE: usize = 1 << 14;

/// Locks of accounts that are kept.
const LOCKS: usize = 1 << 12;

/// A change that asks for room.
pub(crate) struct Obtaining {
    /// Room that was granted for it.
    pledges: Vec<(Account, Pledge)>,
    since: Option<Instant>,
    pause: Duration,
}

impl Obtaining {
    pub(crate) fn new() -> Self {
        Obtaining { pledges: Vec::new(), since: None, pause: PAUSE_MIN }
    }

    /// Lets others go first. Fails if that has lasted too long.
    fn wait(&mut self, server: &Server) -> Result<()> {
        // Two changes may each have what the other one needs.
        self.pledges.clear();
        if self.since.get_or_insert_with(Instant::now).elapsed() >= WAIT_MAX {
            return Err(exceeded());
        }
        server.pause(self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }

    /// Returns whether no other change of the server is about to use room of an account.
    fn is_alone(&self, server: &Server, account: Account) -> bool {
        let own = self.pledges.iter().find(|(of, _)| *of == account);
        own.is_some_and(|(_, pledge)| server.tablet.is_only_pledge(pledge))
    }
}

impl ServerQuotas {
    /// Takes notices of another server, which a change of this one has caused.
    pub(crate) fn relay(&self, server: ServerId, notices: Vec<Notice>) {
        self.relayed.lock().push((server, notices));
    }

    fn lock_of(&self, account: Account) -> Arc<Mutex<()>> {
        let mut asking = self.asking.lock();
        if asking.len() >= LOCKS {
            asking.retain(|_, lock| Arc::strong_count(lock) > 1);
        }
        asking.entry(account).or_default().clone()
    }
}

impl Server {
    /// Returns the shortage that a change has failed for, and the server that has it; otherwise the
    /// error.
    pub(crate) fn shortage_of(&self, error: Error) -> Result<(ServerId, Vec<Shortage>)> {
        match error {
            Error::Namespace(canopy_namespace::Error::Short(short)) => Ok((self.id, short)),
            Error::Short(server, short) => Ok((server, short)),
            error => Err(error),
        }
    }

    /// Gets room for a change of this server, which needs it on a server. The change is to be tried
    /// again.
    ///
    /// # Errors
    ///
    /// Fails with `DQUOT` if there is none, and if a server cannot be asked that may have some.
    pub(crate) fn obtain(
        &self,
        peers: &dyn Peers,
        at: ServerId,
        shortages: &[Shortage],
        obtaining: &mut Obtaining,
    ) -> Result<()> {
        for shortage in shortages {
            let lock = self.quotas.lock_of(shortage.account);
            let one = lock.lock();
            let mut shortage = *shortage;
            if at == self.id {
                if obtaining.pledges.iter().all(|(account, _)| *account != shortage.account) {
                    let pledge = self.tablet.pledge(&shortage);
                    obtaining.pledges.push((shortage.account, pledge));
                }
                // Somebody else may have asked meanwhile.
                match self.tablet.shortage_now(&shortage) {
                    Some(now) => shortage = now,
                    None => continue,
                }
            }
            let obtain = Request::Share(ShareRequest::Obtain(at, shortage));
            let obtained = peers.ask(AUTHORITY, Sender::SERVER, &obtain)?;
            let Response::Obtained(obtained) = obtained else { return Err(Error::Unfit) };
            match obtained {
                Obtained::Granted(grant) if at == self.id => {
                    self.take_share(shortage.account, &grant)?;
                }
                Obtained::Granted(grant) => {
                    let take = ShareMessage::Take(shortage.account, grant);
                    let take = Request::OfServer(ServerRequest::Share(take));
                    peers.ask(at, Sender::SERVER, &take)?;
                }
                Obtained::Refused => return Err(exceeded()),
                Obtained::WaitForOwn if obtaining.is_alone(self, shortage.account) => {
                    return Err(exceeded());
                }
                Obtained::Wait | Obtained::WaitForOwn => {
                    drop(one);
                    return obtaining.wait(self);
                }
            }
        }
        Ok(())
    }

    /// Takes a grant, if no later message has come.
    fn take_share(&self, account: Account, grant: &Grant) -> Result<bool> {
        // A crash that takes the grant takes what has used it, too.
        let taken = self.tablet.change_share(account, false, |share, _, _| {
            let mut share = by_rules(share);
            let is_new = share.take(grant);
            (is_new.then(|| as_recorded(share)), is_new)
        })?;
        Ok(taken)
    }

    /// Answers a message of the authority. Waits for nobody.
    pub(crate) fn answer_share(&self, step: &ShareMessage) -> Result<ShareReply> {
        match step {
            ShareMessage::Collect(account, round, bound) => self.collect(*account, *round, *bound),
            ShareMessage::Take(account, grant) => {
                self.take_share(*account, grant).map(ShareReply::Done)
            }
            ShareMessage::Count(true) => {
                // It is none if a thread counts.
                let failed = self.quotas.counting.try_lock().and_then(|mut failed| failed.take());
                let is_new = |at| self.sessions.now().saturating_sub(at) < FAILURE_TIME;
                match failed.filter(|(_, at)| is_new(*at)) {
                    Some((error, _)) => Err(error.into()),
                    None => Ok(ShareReply::Done(self.tablet.counts_usage())),
                }
            }
            ShareMessage::Count(false) => {
                self.tablet.stop_counting()?;
                Ok(ShareReply::Done(false))
            }
            ShareMessage::UsedBy(account) => {
                let used = self.tablet.used(*account);
                Ok(ShareReply::Used(used.map(|used| (*account, used)).into_iter().collect()))
            }
            ShareMessage::Used(after) => self.used_page(*after).map(ShareReply::Used),
            ShareMessage::Notices(server, notices) => {
                self.quotas.books.note(*server, notices);
                Ok(ShareReply::Done(true))
            }
        }
    }

    fn collect(&self, account: Account, round: Round, bound: [bool; 2]) -> Result<ShareReply> {
        if !self.tablet.counts_usage() {
            return Ok(ShareReply::CountsNothing);
        }
        let collected = self.tablet.change_share(account, true, |share, used, needed| {
            let before = by_rules(share);
            let mut share = before;
            let collected: Option<Collected> = share.collect(round, bound, used, needed);
            ((share != before).then(|| as_recorded(share)), collected)
        })?;
        Ok(collected.map_or(ShareReply::Late, ShareReply::Collected))
    }

    /// Begins to count, unless somebody does. Takes as long as it takes to read all files. The next
    /// message of the authority learns of a failure.
    pub(crate) fn count_usage(&self) {
        let Some(mut failed) = self.quotas.counting.try_lock() else { return };
        let error = self.tablet.start_counting().err();
        *failed = error.map(|error| (error, self.sessions.now()));
    }

    /// Returns the usage of some accounts.
    fn used_page(&self, after: Option<Account>) -> Result<Vec<(Account, [i64; 2])>> {
        if let Some(used) = self.tablet.all_used(after, PAGE) {
            return Ok(used);
        }
        let mut counted = self.quotas.counted.lock();
        if after.is_none() {
            *counted = None;
        }
        let sums = match counted.take() {
            Some(sums) => sums,
            None => {
                let sums = self.tablet.count_once()?.into_iter();
                sums.map(|(account, sums)| (account, sums.map(|sum| sum as i64))).collect()
            }
        };
        let behind = sums.iter().filter(|(account, _)| after < Some(**account));
        let page = Vec::from_iter(behind.take(PAGE).map(|(account, used)| (*account, *used)));
        *counted = (page.len() == PAGE).then_some(sums);
        Ok(page)
    }

    /// Does what is due beside requests: here, and at all servers if this is the authority.
    pub(crate) fn settle_limits(&self, peers: &dyn Peers) -> Result<()> {
        self.send_notices(peers)?;
        if self.has_reviews() { self.review(peers) } else { Ok(()) }
    }

    /// Returns whether the authority has to know something.
    pub(crate) fn has_notices(&self) -> bool {
        self.tablet.has_notices() || !self.quotas.relayed.lock().is_empty()
    }

    /// Reports to the authority what it has to know.
    pub(crate) fn send_notices(&self, peers: &dyn Peers) -> Result<()> {
        let relayed = std::mem::take(&mut *self.quotas.relayed.lock());
        for (server, notices) in relayed {
            // The other server reports this, too.
            self.send_notices_of(peers, server, notices)?;
        }
        let notices = self.tablet.take_notices();
        if notices.is_empty() {
            return Ok(());
        }
        let sent = self.send_notices_of(peers, self.id, notices.clone());
        if sent.is_err() {
            self.tablet.return_notices(&notices);
        }
        sent
    }

    fn send_notices_of(
        &self,
        peers: &dyn Peers,
        server: ServerId,
        notices: Vec<Notice>,
    ) -> Result<()> {
        let step = ShareMessage::Notices(server, notices);
        let request = Request::OfServer(ServerRequest::Share(step));
        peers.ask(AUTHORITY, Sender::SERVER, &request).map(drop)
    }
}

/// Returns the error of a change that would pass a limit.
pub(super) fn exceeded() -> Error {
    canopy_namespace::Error::from(Errno::DQUOT).into()
}
