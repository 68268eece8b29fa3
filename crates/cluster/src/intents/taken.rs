//! Executed changes that a file takes along to another server.
//!
//! A change of a file may have been sent to a server that did not have it, and was executed by another
//! one. A late copy of the request must not be executed once the file has moved to the former. So a
//! server that gets a file by a change of several servers gets the records of executed changes that
//! the file's server has (`canopy_namespace`, `executed`), as a receiver of a partition does. It takes
//! them before its part is made.
//!
//! 1. The records are collected once the file is locked. So all changes of it that were executed are
//!    among them, or were followed by later ones of their slots, which refuse copies, too.
//! 2. They become known elsewhere once the intent is decided. Its decision, or preparation, is behind
//!    them in the log of their server: no crash takes them back.
//! 3. A server sends another one only what is new since the last intent that has ended there. It
//!    remembers that in memory: after a restart it sends all records once more.
//! 4. A change that itself moves a file, as `link` does, has its own record among them.
//! 5. Many records do not fit the message of a part. They go ahead, in messages of their own, once they
//!    outlast a crash here, and count as known once they do there. A participant has no messages of its
//!    own: it replies with them, and prepares the part once it gets it again with the number of those
//!    that the decider has. That number belongs to an epoch of the table, which a successor ends.

use crate::error::{Error, Result};
use crate::intents::Part;
use crate::message::{IntentReply, IntentStep};
use crate::peers::Peers;
use crate::server::Server;
use canopy_namespace::{ExecutedPage, ExecutedRecord, FileId, Reply, Tablet};
use canopy_partition::{IntentId, ServerId};
use parking_lot::Mutex;
use std::collections::HashMap;

/// Records of executed changes that other servers have, by the count of changes here.
#[derive(Default)]
pub(crate) struct SentRecords(Mutex<Sent>);

#[derive(Default)]
struct Sent {
    known: HashMap<ServerId, u64>,
    /// Those that become known with the ends of intents.
    pending: HashMap<IntentId, (ServerId, u64)>,
}

/// Bytes of records that go with the message of a part, which has an entry of 60 MiB at most.
const WITH_PART: usize = 1 << 20;

/// Bytes of records that go ahead in one message.
const AHEAD: usize = 16 << 20;

/// Records that a server may not have.
pub(crate) enum Sending {
    /// All of them: they go with the message of a part.
    With(Vec<ExecutedRecord>),
    /// The first ones, which go ahead.
    Ahead(ExecutedPage),
}

impl SentRecords {
    /// Notes that a server has the records up to a count.
    pub(crate) fn note(&self, server: ServerId, count: u64) {
        let known = &mut self.0.lock().known;
        let known = known.entry(server).or_default();
        *known = (*known).max(count);
    }

    /// Notes the end of an intent at a server.
    pub(crate) fn end(&self, intent: IntentId, is_committed: bool) {
        let Sent { known, pending } = &mut *self.0.lock();
        if let Some((server, count)) = pending.remove(&intent).filter(|_| is_committed) {
            let known = known.entry(server).or_default();
            *known = (*known).max(count);
        }
    }
}

impl Part {
    /// Returns the file that moves to the participant.
    pub(crate) fn brings(&self) -> Option<FileId> {
        let entry = match self {
            Part::Arrive(arriving) => &arriving.moving.as_ref()?.entry,
            Part::Gather { moving, .. } => &moving.entry,
            _ => return None,
        };
        (!entry.inode.is_pointer()).then_some(entry.inode.id)
    }
}

impl Server {
    /// Returns the records of executed changes that a server may not have, to which an intent moves a
    /// file. If there are many, the server gets most of them first. `reply` is that of the change, if it
    /// may be among those whose copies come late.
    pub(crate) fn executed_for(
        &self,
        peers: &dyn Peers,
        server: ServerId,
        intent: IntentId,
        reply: Option<&Reply>,
    ) -> Result<Vec<ExecutedRecord>> {
        loop {
            match self.executed_to_send(server, intent)? {
                Sending::With(mut records) => {
                    records.extend(reply.and_then(Tablet::record_of_running));
                    return Ok(records);
                }
                Sending::Ahead(page) => {
                    let ahead = IntentStep::Executed(page.records);
                    match self.send(peers, server, intent, ahead)? {
                        IntentReply::Ended(true) => self.sent_records.note(server, page.count),
                        _ => return Err(Error::Unfit),
                    }
                }
            }
        }
    }

    /// Returns the records that a server may not have. Those that have to go ahead outlast a crash.
    pub(crate) fn executed_to_send(&self, server: ServerId, intent: IntentId) -> Result<Sending> {
        let known = self.sent_records.0.lock().known.get(&server).copied().unwrap_or_default();
        let page = self.tablet.executed_since(known, WITH_PART)?;
        if page.is_last {
            self.sent_records.0.lock().pending.insert(intent, (server, page.count));
            return Ok(Sending::With(page.records));
        }
        let page = self.tablet.executed_since(known, AHEAD)?;
        self.tablet.table().sync()?;
        Ok(Sending::Ahead(page))
    }

    /// Takes records that go ahead of a part. They outlast a crash then.
    pub(crate) fn take_ahead(&self, records: &[ExecutedRecord]) -> Result<()> {
        self.take_records(records)?;
        Ok(self.tablet.table().sync()?)
    }

    /// Takes records of executed changes of another server. They outlast a crash with the next write
    /// that does.
    pub(crate) fn take_records(&self, records: &[ExecutedRecord]) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        self.sessions.adopt(records.iter().map(|record| record.session));
        Ok(self.tablet.take_executed(records)?)
    }
}
