//! Names and files in doubt: prepared for a change that may have happened. Whoever needs them asks the
//! decider, and so does the work beside requests, after a crash or a lost message.

use crate::brief;
use crate::error::{Error, Result};
use crate::intents::{Backoff, LockKey};
use crate::message::{IntentMessage, IntentReply, Request};
use crate::peers::Peers;
use crate::server::Server;
use canopy_namespace::hash_after;
use canopy_namespace::operation::{Operation, Page, Target};
use canopy_partition::{IntentId, Verdict};

impl Server {
    /// Finds out about an intent that another server decides, and acts on the answer. Returns whether
    /// it has ended here.
    pub(crate) fn resolve(&self, peers: &dyn Peers, intent: IntentId) -> Result<bool> {
        if intent.decider == self.id {
            let intents = &self.state.read().intents;
            return Ok(intents.stage(intent).is_none());
        }
        let preparation = self.state.read().intents.preparations.of(intent);
        // It is being checked, and ends soon.
        let Some(preparation) = preparation else { return Ok(false) };
        let ask = IntentMessage::Ask { participant: self.id, preparation };
        match self.send(peers, intent.decider, intent, ask)? {
            IntentReply::Verdict(Verdict::Committed) => self.finish(intent, preparation, true),
            IntentReply::Verdict(Verdict::Aborted) => self.finish(intent, preparation, false),
            IntentReply::Verdict(Verdict::Pending | Verdict::Unknown) => Ok(false),
            _ => Err(Error::Unfit),
        }
    }

    /// Waits for the end of an intent that blocks a change.
    pub(crate) fn wait_out(
        &self,
        peers: &dyn Peers,
        intent: IntentId,
        waits: &mut Backoff,
    ) -> Result<()> {
        brief::check()?;
        match self.resolve(peers, intent)? {
            // A server that was replaced, and does not know it, may never see the end.
            true => waits.check(self, intent),
            false => waits.pause(self, intent),
        }
    }

    /// Makes the parts of all changes that have happened and that a read might see. Others may happen
    /// meanwhile; then the read is one of before.
    pub(crate) fn clear(&self, peers: &dyn Peers, request: &Request<'_>) -> Result<()> {
        let holders = match request {
            Request::List(page) => self.holders_in_page(page),
            Request::Execute(operation @ (Operation::Read(..) | Operation::Access(_))) => {
                match operation.target() {
                    Target::Name { directory, hash } => {
                        self.holders_of(LockKey::Name(directory, hash))
                    }
                    Target::File(id) => self.holders_of(LockKey::File(id)),
                    Target::Anywhere => Vec::new(),
                }
            }
            Request::NameOf(id) | Request::LeaseDirectory(id) => {
                self.holders_of(LockKey::File(*id))
            }
            _ => Vec::new(),
        };
        for intent in holders.into_iter().filter(|intent| intent.decider != self.id) {
            brief::check()?;
            self.resolve(peers, intent)?;
        }
        Ok(())
    }

    fn holders_of(&self, key: LockKey) -> Vec<IntentId> {
        self.state.read().intents.holder(&[key]).into_iter().collect()
    }

    fn holders_in_page(&self, page: &Page<'_>) -> Vec<IntentId> {
        let state = self.state.read();
        if state.intents.locks.is_empty() {
            return Vec::new();
        }
        let range = self.tablet.range().around(page.directory, hash_after(page.after));
        range.map_or_else(Vec::new, |range| state.intents.holders_in(page.directory, &range))
    }

    /// Returns whether changes of several servers have not ended here, so that somebody has to ask.
    pub(crate) fn has_doubts(&self) -> bool {
        self.state.read().intents.has_doubts()
    }

    /// Does what a crash, or a message that was lost, has left undone. Returns whether nothing is
    /// left.
    pub(crate) fn clear_doubts(&self, peers: &dyn Peers) -> Result<bool> {
        let (unsure, unanswered, unconfirmed) = {
            let intents = &self.state.read().intents;
            (
                Vec::from_iter(intents.unsure.keys().copied()),
                Vec::from_iter(intents.preparations.unanswered()),
                Vec::from_iter(intents.decisions.unconfirmed()),
            )
        };
        let mut outcome = Ok(());
        for number in unsure {
            outcome = outcome.and(self.make_sure(number));
        }
        for (intent, _) in unanswered {
            outcome = outcome.and(self.resolve(peers, intent).map(drop));
        }
        for (intent, participant, preparation) in unconfirmed {
            outcome = outcome.and(self.pass_on(peers, intent, participant, preparation));
        }
        outcome?;
        Ok(!self.state.read().intents.has_doubts())
    }
}
