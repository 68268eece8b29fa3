//! The authority: it records limits and the base of each server, collects room and grants it.
//!
//! ```text
//! record of an account              limits, since when soft ones are passed, directory, grace
//! record of an account and server   the base
//! ```

use super::{AUTHORITY, Obtained, ShareMessage, ShareReply};
use crate::error::{Error, Result};
use crate::message::{Request, Response, Sender, ServerRequest};
use crate::peers::Peers;
use crate::server::Server;
use canopy_namespace::quota::{Account, LedgerRecord, Limits, Notice, Shortage};
use canopy_namespace::{FileId, Tablet};
use canopy_partition::{Amounts, Bounds, Grant, Ledger, ServerId, UNLIMITED};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Time for which a limit that is set waits until servers have counted; then it has to be set
/// again.
const COUNTING_MAX: Duration = Duration::from_secs(5);
const COUNTING_PAUSE: Duration = Duration::from_millis(5);

/// Accounts, as the authority knows them.
pub(super) struct Books {
    epoch: u64,
    books: Mutex<BTreeMap<Account, Arc<Mutex<Book>>>>,
    /// News of servers that no book has yet.
    noted: Mutex<BTreeMap<Account, Noted>>,
    /// Accounts of which a soft limit may be passed by a grant alone: the change that asked may
    /// have failed.
    unsure: Mutex<BTreeSet<Account>>,
    /// Number of servers that all accounts with limits have bases for.
    servers: AtomicU32,
    /// Held by whoever sets limits.
    setting: Mutex<()>,
}

/// News of servers about an account.
#[derive(Default)]
struct Noted {
    /// Servers that have room.
    servers: BTreeSet<ServerId>,
    is_overdrawn: bool,
}

impl Noted {
    fn add(&mut self, other: Noted) {
        self.servers.extend(other.servers);
        self.is_overdrawn |= other.is_overdrawn;
    }
}

/// One account.
pub(super) struct Book {
    pub(super) limits: Limits,
    pub(super) ledger: Ledger,
    /// Servers that have room, as far as is known.
    suspects: BTreeSet<ServerId>,
}

/// Record of an account.
#[derive(Serialize, Deserialize)]
struct Header {
    limits: Limits,
    since_ns: Amounts,
}

impl Books {
    /// Reads what a table records.
    pub(super) fn open(tablet: &Tablet) -> Result<Self> {
        let epoch = tablet.table().manifest().state.epoch;
        let mut headers = BTreeMap::new();
        let mut bases: BTreeMap<Account, BTreeMap<ServerId, Amounts>> = BTreeMap::new();
        for LedgerRecord { account, rest, value } in tablet.ledger_records()? {
            let value = value.unwrap_or_default();
            match <[u8; 4]>::try_from(&rest[..]) {
                Ok(server) => {
                    let server = ServerId(u32::from_be_bytes(server));
                    let base = postcard::from_bytes(&value).map_err(|_| damaged())?;
                    bases.entry(account).or_default().insert(server, base);
                }
                Err(_) => {
                    let header: Header = postcard::from_bytes(&value).map_err(|_| damaged())?;
                    headers.insert(account, header);
                }
            }
        }
        let (mut books, mut unsure) = (BTreeMap::new(), BTreeSet::new());
        for (account, Header { limits, since_ns }) in headers {
            let of_account = bases.remove(&account).unwrap_or_default();
            // Any of them may have room.
            let suspects = of_account.keys().copied().collect();
            let ledger = Ledger::new(epoch, bounds(&limits), since_ns, of_account);
            if since_ns != [0; 2] {
                unsure.insert(account);
            }
            let book = Book { limits, ledger, suspects };
            books.insert(account, Arc::new(Mutex::new(book)));
        }
        Ok(Books {
            epoch,
            books: Mutex::new(books),
            noted: Mutex::default(),
            unsure: Mutex::new(unsure),
            servers: AtomicU32::new(0),
            setting: Mutex::new(()),
        })
    }

    /// Returns the book of an account. One without limits is in memory alone.
    fn of(&self, account: Account) -> Arc<Mutex<Book>> {
        let new = || {
            let ledger = Ledger::new(self.epoch, Bounds::default(), [0; 2], []);
            let (limits, suspects) = (Limits::default(), BTreeSet::new());
            Arc::new(Mutex::new(Book { limits, ledger, suspects }))
        };
        self.books.lock().entry(account).or_insert_with(new).clone()
    }

    /// Returns the books that there are.
    fn all(&self) -> Vec<(Account, Arc<Mutex<Book>>)> {
        let books = self.books.lock();
        books.iter().map(|(account, book)| (*account, book.clone())).collect()
    }

    /// Returns limits, and since when soft ones are passed, of all accounts with limits and of
    /// trees.
    pub(super) fn limits(&self) -> Vec<(Account, Limits, Amounts)> {
        let mut all = Vec::new();
        for (account, book) in self.all() {
            let book = book.lock();
            if book.is_recorded() {
                all.push((account, book.limits, book.ledger.since_ns()));
            }
        }
        all
    }

    /// Returns whether there is any limit or tree, so that servers count.
    pub(super) fn counts(&self) -> bool {
        self.all().iter().any(|(_, book)| book.lock().is_recorded())
    }

    /// Notes news of a server. Waits for nobody.
    pub(super) fn note(&self, server: ServerId, notices: &[Notice]) {
        let mut noted = self.noted.lock();
        for notice in notices {
            let news = noted.entry(notice.account).or_default();
            news.servers.insert(server);
            news.is_overdrawn |= notice.is_overdrawn;
        }
    }

    /// Takes the news about an account.
    fn take_noted(&self, account: Account) -> Noted {
        self.noted.lock().remove(&account).unwrap_or_default()
    }
}

impl Book {
    fn is_limited(&self) -> bool {
        self.ledger.bound() != [false; 2]
    }

    fn is_recorded(&self) -> bool {
        self.is_limited() || self.limits.directory != FileId::NONE
    }

    fn header(&self, account: Account) -> LedgerRecord {
        let header = Header { limits: self.limits, since_ns: self.ledger.since_ns() };
        let value = self.is_recorded().then(|| encode(&header));
        LedgerRecord { account, rest: Vec::new(), value }
    }

    fn base(&self, account: Account, server: ServerId) -> LedgerRecord {
        let base = self.ledger.bases().get(&server).filter(|_| self.is_recorded());
        let rest = server.0.to_be_bytes().to_vec();
        LedgerRecord { account, rest, value: base.map(encode) }
    }
}

impl Server {
    /// Authority: answers a server that needs more of an account.
    pub(super) fn obtain_for(
        &self,
        peers: &dyn Peers,
        server: ServerId,
        shortage: &Shortage,
    ) -> Result<Obtained> {
        let account = shortage.account;
        let book = self.quotas.books.of(account);
        let mut book = book.lock();
        if !book.is_limited() {
            return Ok(Obtained::Granted(book.ledger.release(server)));
        }
        let is_known = book.ledger.bases().contains_key(&server);
        if is_known
            && let Some(grant) = self.grant(&mut book, server, shortage, shortage.missing, false)?
        {
            return Ok(Obtained::Granted(grant));
        }
        let bound = book.ledger.bound();
        let in_use = self.collect_all(peers, account, &mut book, bound)?;
        Ok(match self.grant(&mut book, server, shortage, shortage.needed, true)? {
            Some(grant) => Obtained::Granted(grant),
            None if in_use.iter().any(|at| *at != server) => Obtained::Wait,
            None if !in_use.is_empty() => Obtained::WaitForOwn,
            None => Obtained::Refused,
        })
    }

    /// Grants a server at least so much, if that is free, and records it.
    fn grant(
        &self,
        book: &mut Book,
        server: ServerId,
        shortage: &Shortage,
        needed: Amounts,
        is_complete: bool,
    ) -> Result<Option<Grant>> {
        let (before, now_ns) = (book.ledger.clone(), self.tablet.now_ns());
        let servers = self.layout.server_count();
        let grant = book.ledger.grant(server, needed, servers, now_ns, is_complete);
        let account = shortage.account;
        let mut records = Vec::new();
        if grant.is_some() {
            records.push(book.base(account, server));
        }
        if before.since_ns() != book.ledger.since_ns() {
            records.push(book.header(account));
            self.quotas.books.unsure.lock().insert(account);
        }
        if records.is_empty() {
            return Ok(grant);
        }
        if let Err(error) = self.tablet.put_ledger_records(&records) {
            book.ledger = before;
            return Err(error.into());
        }
        if grant.is_some() {
            book.suspects.insert(server);
        }
        // If this fails, room is wasted until it is collected.
        self.tablet.table().sync_visible()?;
        Ok(grant)
    }

    /// Collects room from all servers that may have some, and from those that have no base so far.
    /// Fails if one cannot be asked. Returns those where some room stays.
    fn collect_all(
        &self,
        peers: &dyn Peers,
        account: Account,
        book: &mut Book,
        bound: [bool; 2],
    ) -> Result<Vec<ServerId>> {
        let noted = self.quotas.books.take_noted(account);
        book.suspects.extend(noted.servers.iter().copied());
        let bases = book.ledger.bases();
        let unknown = self.layout.servers().filter(|server| !bases.contains_key(server));
        let servers: BTreeSet<_> = unknown.chain(book.suspects.iter().copied()).collect();
        let (mut in_use, mut collected, mut outcome) = (Vec::new(), Vec::new(), Ok(()));
        for server in servers {
            match self.collect_from(peers, server, account, book, bound) {
                Ok(is_kept) => {
                    collected.push(server);
                    in_use.extend(is_kept.then_some(server));
                }
                Err(error) => outcome = Err(error),
            }
        }
        let records = collected.into_iter().map(|server| book.base(account, server));
        let records = Vec::from_iter(records);
        let recorded = self.tablet.put_ledger_records(&records);
        let recorded = recorded.and_then(|()| Ok(self.tablet.table().sync_visible()?));
        if outcome.is_err() {
            self.quotas.books.noted.lock().entry(account).or_default().add(noted);
        }
        recorded?;
        outcome.map(|()| in_use)
    }

    /// Collects from one server. Returns whether some room stays there.
    fn collect_from(
        &self,
        peers: &dyn Peers,
        server: ServerId,
        account: Account,
        book: &mut Book,
        bound: [bool; 2],
    ) -> Result<bool> {
        let deadline = Instant::now() + COUNTING_MAX;
        loop {
            let round = book.ledger.next_round(server);
            match self.tell(peers, server, ShareMessage::Collect(account, round, bound))? {
                ShareReply::Collected(collected) => {
                    if !book.ledger.collected(server, &collected) {
                        return Err(Error::Unfit);
                    }
                    match collected.is_in_use {
                        true => book.suspects.insert(server),
                        false => book.suspects.remove(&server),
                    };
                    return Ok(collected.is_in_use);
                }
                // A message of a later owner of this table has come there.
                ShareReply::Late => return Err(Error::NotRunning(AUTHORITY)),
                ShareReply::CountsNothing => self.have_counted(peers, &[server], deadline)?,
                _ => return Err(Error::Unfit),
            }
        }
    }

    /// Has servers count usage, and waits until they do.
    fn have_counted(
        &self,
        peers: &dyn Peers,
        servers: &[ServerId],
        deadline: Instant,
    ) -> Result<()> {
        let mut left = servers.to_vec();
        loop {
            let mut waiting = Vec::new();
            for server in left {
                if self.tell(peers, server, ShareMessage::Count(true))? != ShareReply::Done(true) {
                    waiting.push(server);
                }
            }
            let Some(first) = waiting.first() else { return Ok(()) };
            if Instant::now() > deadline {
                let text = format!("server {first} still counts its files; try again later");
                let failure = canopy_namespace::Failure::unavailable(&text);
                return Err(canopy_namespace::Error::from(failure).into());
            }
            std::thread::sleep(COUNTING_PAUSE);
            left = waiting;
        }
    }

    /// Sends a server a message of the authority.
    pub(super) fn tell(
        &self,
        peers: &dyn Peers,
        server: ServerId,
        step: ShareMessage,
    ) -> Result<ShareReply> {
        let request = Request::OfServer(ServerRequest::Share(step));
        match peers.ask(server, Sender::SERVER, &request)? {
            Response::Share(reply) => Ok(reply),
            _ => Err(Error::Unfit),
        }
    }

    /// Authority: sets the limits of an account. No limits end them.
    pub(super) fn set_limits(
        &self,
        peers: &dyn Peers,
        account: Account,
        limits: Limits,
    ) -> Result<()> {
        let one = self.quotas.books.setting.lock();
        self.set_limits_held(peers, account, limits, &one)
    }

    /// Sets limits for a caller that has the lock of settings.
    pub(super) fn set_limits_held(
        &self,
        peers: &dyn Peers,
        account: Account,
        limits: Limits,
        _one: &MutexGuard<'_, ()>,
    ) -> Result<()> {
        let _running = self.cuts.begin_change(|| self.sessions.now());
        let book = self.quotas.books.of(account);
        let mut book = book.lock();
        let is_none = limits.are_none() && limits.directory == FileId::NONE;
        if is_none {
            if !book.is_recorded() {
                return Ok(());
            }
            return self.end_limits(peers, account, book);
        }
        let deadline = Instant::now() + COUNTING_MAX;
        // A server that is added later begins to count by itself.
        self.layout.refresh()?;
        self.have_counted(peers, &Vec::from_iter(self.layout.servers()), deadline)?;
        let bounds = bounds(&limits);
        // Room was granted by the limits before.
        book.suspects.extend(self.layout.servers());
        let bound = [0, 1].map(|kind| bounds.soft[kind] != 0 || bounds.hard[kind] != 0);
        self.collect_all(peers, account, &mut book, bound)?;
        let (ledger, before) = (book.ledger.clone(), book.limits);
        book.ledger.set(bounds, self.tablet.now_ns());
        book.limits = limits;
        let bases = Vec::from_iter(book.ledger.bases().keys().copied());
        let bases = bases.into_iter().map(|server| book.base(account, server));
        let records = Vec::from_iter([book.header(account)].into_iter().chain(bases));
        if let Err(error) = self.tablet.put_ledger_records(&records) {
            (book.ledger, book.limits) = (ledger, before);
            return Err(error.into());
        }
        Ok(self.tablet.table().sync_visible()?)
    }

    /// Ends the limits of an account. A server that does not get to know asks when it has no room.
    fn end_limits(
        &self,
        peers: &dyn Peers,
        account: Account,
        mut book: MutexGuard<'_, Book>,
    ) -> Result<()> {
        let bases = Vec::from_iter(book.ledger.bases().keys().copied());
        let header = LedgerRecord { account, rest: Vec::new(), value: None };
        let rest = bases.iter().map(|server| server.0.to_be_bytes().to_vec());
        let gone = rest.map(|rest| LedgerRecord { account, rest, value: None });
        self.tablet.put_ledger_records(&Vec::from_iter([header].into_iter().chain(gone)))?;
        book.limits = Limits::default();
        book.ledger.set(Bounds::default(), 0);
        book.suspects.clear();
        self.tablet.table().sync_visible()?;
        for server in bases {
            let grant = book.ledger.release(server);
            let _ = self.tell(peers, server, ShareMessage::Take(account, grant));
        }
        drop(book);
        if !self.quotas.books.counts() {
            for server in self.layout.servers() {
                // One that counts on does more than it has to, and nothing else.
                let _ = self.tell(peers, server, ShareMessage::Count(false));
            }
        }
        Ok(())
    }

    /// Authority: returns the lock of settings.
    pub(super) fn lock_settings(&self) -> MutexGuard<'_, ()> {
        self.quotas.books.setting.lock()
    }

    /// Authority: returns whether accounts have to be reviewed: more is used than the limit, a soft
    /// limit that was passed may be so no more, or a server is new.
    pub(crate) fn has_reviews(&self) -> bool {
        self.id == AUTHORITY && !self.to_review().is_empty()
    }

    fn to_review(&self) -> Vec<Account> {
        let books = &self.quotas.books;
        let servers = self.layout.server_count();
        let is_grown = books.servers.load(Ordering::Relaxed) != servers;
        let mut found = books.unsure.lock().clone();
        let noted = books.noted.lock();
        let noted =
            Vec::from_iter(noted.iter().map(|(account, news)| (*account, news.is_overdrawn)));
        for (account, is_overdrawn) in noted {
            let book = books.of(account);
            // Somebody who has it collects.
            let Some(book) = book.try_lock() else { continue };
            if is_overdrawn || book.ledger.since_ns() != [0; 2] {
                found.insert(account);
            }
        }
        if is_grown {
            let is_new = |book: &Book| (book.ledger.bases().len() as u32) < servers;
            let new = books.all().into_iter().filter(|(_, book)| {
                book.try_lock().is_none_or(|book| book.is_limited() && is_new(&book))
            });
            let new = Vec::from_iter(new.map(|(account, _)| account));
            if new.is_empty() {
                books.servers.store(servers, Ordering::Relaxed);
            }
            found.extend(new);
        }
        Vec::from_iter(found)
    }

    /// Authority: collects what servers have, where something has to be found out.
    pub(crate) fn review(&self, peers: &dyn Peers) -> Result<()> {
        // In a pause for a cut, it has to wait for the next tick.
        let Some(_running) = self.cuts.try_begin_change() else { return Ok(()) };
        for account in self.to_review() {
            let book = self.quotas.books.of(account);
            let mut book = book.lock();
            if !book.is_limited() {
                self.quotas.books.unsure.lock().remove(&account);
                self.quotas.books.take_noted(account);
                continue;
            }
            book.suspects.extend(self.layout.servers());
            let bound = book.ledger.bound();
            self.collect_all(peers, account, &mut book, bound)?;
            self.quotas.books.unsure.lock().remove(&account);
            if book.ledger.review(self.tablet.now_ns()) {
                self.tablet.put_ledger_records(&[book.header(account)])?;
                self.tablet.table().sync_visible()?;
            }
        }
        Ok(())
    }

    /// Authority: returns the limits of an account, and since when soft ones are passed.
    pub(super) fn limits_of(&self, account: Account) -> (Limits, Amounts) {
        let book = self.quotas.books.of(account);
        let book = book.lock();
        (book.limits, book.ledger.since_ns())
    }

    /// Authority: returns limits of all accounts that have some, and of trees.
    pub(super) fn all_limits(&self) -> Vec<(Account, Limits, Amounts)> {
        self.quotas.books.limits()
    }

    /// Authority: returns whether usage is counted.
    pub(super) fn has_limits(&self) -> bool {
        self.quotas.books.counts()
    }
}

/// Returns limits as the rules have them.
fn bounds(limits: &Limits) -> Bounds {
    let amount = |limit: u64| i64::try_from(limit).unwrap_or(UNLIMITED).min(UNLIMITED);
    Bounds {
        soft: [limits.bytes_soft, limits.inodes_soft].map(amount),
        hard: [limits.bytes_hard, limits.inodes_hard].map(amount),
        grace_ns: i64::try_from(limits.grace_s).unwrap_or(i64::MAX).saturating_mul(1_000_000_000),
    }
}

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // Encoding into memory cannot fail.
    postcard::to_extend(value, Vec::new()).unwrap_or_default()
}

fn damaged() -> Error {
    canopy_namespace::Error::Corrupt("a record of limits".into()).into()
}
