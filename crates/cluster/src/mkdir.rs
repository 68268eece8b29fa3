//! Directories that are being made: the home makes the content half, and the server of the name
//! gives it the name. Neither a crash nor a lost message leaves a half without a name for ever.
//!
//! 1. The server of the name begins an attempt, which it knows to be running.
//! 2. The home makes the half, with a record of the attempt.
//! 3. The server of the name gives it the name, with a record that the home does not know so.
//! 4. It passes that on, beside requests. The home forgets its record, and then it does, too.
//!
//! A home whose record stays asks the server of the name what became of the attempt. The half goes
//! if the attempt has ended, by the word of an owner of that table, without a record of the name.

use crate::error::{Error, Result};
use crate::message::{MkdirVerdict, Request, Response, Sender, ServerRequest};
use crate::peers::Peers;
use crate::server::Server;
use canopy_namespace::{FileId, NewDirectory, Tablet};
use canopy_partition::{Attempt, ServerId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

/// A half that may have no name.
#[derive(Clone, Copy)]
struct Unnamed {
    /// The server of the name.
    server: ServerId,
    attempt: Attempt,
    /// The moment from which on this server has known it.
    since: Duration,
}

/// Directories that a server makes.
pub(crate) struct MakingDirectories {
    /// Halves that may have no name.
    unnamed: Mutex<HashMap<FileId, Unnamed>>,
    /// Attempts of this server that go on.
    running: Mutex<HashSet<Attempt>>,
    /// Directories with names here, which their homes may not know.
    named: Mutex<Vec<FileId>>,
}

/// An attempt that goes on until this is dropped.
pub(crate) struct RunningAttempt<'a> {
    making: &'a MakingDirectories,
    pub(crate) attempt: Attempt,
}

impl Drop for RunningAttempt<'_> {
    fn drop(&mut self) {
        self.making.running.lock().remove(&self.attempt);
    }
}

impl MakingDirectories {
    /// Reads what a table records.
    pub(crate) fn open(tablet: &Tablet, now: Duration) -> Result<Self> {
        let recorded = tablet.making()?;
        let mut unnamed = HashMap::new();
        for (id, value) in recorded.halves {
            let damaged = |_| canopy_namespace::Error::Corrupt("an attempt of a directory".into());
            let (server, attempt) = postcard::from_bytes(&value).map_err(damaged)?;
            unnamed.insert(id, Unnamed { server, attempt, since: now });
        }
        Ok(MakingDirectories {
            unnamed: Mutex::new(unnamed),
            running: Mutex::default(),
            named: Mutex::new(recorded.named),
        })
    }

    pub(crate) fn begin(&self, attempt: Attempt) -> RunningAttempt<'_> {
        self.running.lock().insert(attempt);
        RunningAttempt { making: self, attempt }
    }

    /// Notes that a directory got its name here.
    pub(crate) fn name(&self, id: FileId) {
        self.named.lock().push(id);
    }

    /// Returns whether homes have to be notified.
    pub(crate) fn has_named(&self) -> bool {
        !self.named.lock().is_empty()
    }

    /// Returns whether a half has been without a name for this long.
    pub(crate) fn has_unnamed(&self, patience: Duration, now: Duration) -> bool {
        let unnamed = self.unnamed.lock();
        unnamed.values().any(|one| now.saturating_sub(one.since) >= patience)
    }

    /// Returns whether nothing is left to be done.
    pub(crate) fn is_at_rest(&self) -> bool {
        !self.has_named() && self.unnamed.lock().is_empty()
    }
}

impl Server {
    /// Home: makes the content half of a directory.
    pub(crate) fn make_directory(
        &self,
        new: &NewDirectory,
        server: ServerId,
        attempt: Attempt,
    ) -> Result<Response> {
        // A few numbers cannot fail to be encoded into memory.
        let value = postcard::to_extend(&(server, attempt), Vec::new()).unwrap_or_default();
        let inode = self.tablet.create_content_half(new, &value)?;
        let unnamed = Unnamed { server, attempt, since: self.sessions.now() };
        self.making.unnamed.lock().insert(inode.id, unnamed);
        self.tablet.table().sync_visible()?;
        Ok(Response::Made(inode))
    }

    /// Home: removes a half that has no name and gets none.
    pub(crate) fn drop_directory(&self, id: FileId) -> Result<()> {
        self.tablet.remove_unnamed(id)?;
        self.making.unnamed.lock().remove(&id);
        Ok(())
    }

    /// Home: these directories have their names.
    pub(crate) fn finish_making(&self, ids: &[FileId]) -> Result<()> {
        self.tablet.finish_making(ids)?;
        let mut unnamed = self.making.unnamed.lock();
        unnamed.retain(|id, _| !ids.contains(id));
        Ok(())
    }

    /// Server of the name: returns what became of an attempt to make a directory.
    pub(crate) fn fate_of(&self, id: FileId, attempt: Attempt) -> Result<MkdirVerdict> {
        if attempt.epoch > self.epoch() {
            return Ok(MkdirVerdict::Unknown);
        }
        // An attempt ends after it has given the name, so this order misses none.
        if self.making.running.lock().contains(&attempt) {
            return Ok(MkdirVerdict::Pending);
        }
        if !self.tablet.has_named(id)? {
            return Ok(MkdirVerdict::Ended);
        }
        // The home forgets by this word, so a crash must not take the name.
        self.tablet.table().sync()?;
        Ok(MkdirVerdict::Named)
    }

    /// Server of names: has the homes of directories know that they have names.
    pub(crate) fn confirm_names(&self, peers: &dyn Peers) -> Result<()> {
        loop {
            let named = std::mem::take(&mut *self.making.named.lock());
            if named.is_empty() {
                return Ok(());
            }
            if let Err(error) = self.confirm(peers, &named) {
                self.making.named.lock().extend(named);
                return Err(error);
            }
        }
    }

    fn confirm(&self, peers: &dyn Peers, named: &[FileId]) -> Result<()> {
        self.tablet.table().sync()?;
        let mut by_home: BTreeMap<ServerId, Vec<FileId>> = BTreeMap::new();
        for id in named {
            by_home.entry(self.layout.home(*id)?).or_default().push(*id);
        }
        for (home, ids) in by_home {
            let request = Request::OfServer(ServerRequest::Named(ids));
            peers.ask(home, Sender::SERVER, &request)?.done()?;
        }
        Ok(self.tablet.forget_named(named)?)
    }

    /// Home: asks about halves that have been without a name for this long, and acts on the answers.
    /// Returns whether nothing is left to be asked.
    pub(crate) fn settle_making(&self, peers: &dyn Peers, patience: Duration) -> Result<bool> {
        let now = self.sessions.now();
        let mut old = Vec::from_iter(self.making.unnamed.lock().clone());
        old.retain(|(_, unnamed)| now.saturating_sub(unnamed.since) >= patience);
        old.sort_unstable_by_key(|(id, _)| *id);
        let mut is_done = true;
        for (id, Unnamed { server, attempt, .. }) in old {
            let ask = Request::OfServer(ServerRequest::FateOf(id, attempt));
            let Response::MkdirVerdict(fate) = peers.ask(server, Sender::SERVER, &ask)? else {
                return Err(Error::Unfit);
            };
            match fate {
                MkdirVerdict::Named => self.finish_making(&[id])?,
                MkdirVerdict::Ended => self.drop_directory(id)?,
                MkdirVerdict::Pending | MkdirVerdict::Unknown => is_done = false,
            }
        }
        Ok(is_done)
    }
}
