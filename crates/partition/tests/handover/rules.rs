//! The rules of the hand-over, each of which can be left out.

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Requests for the upper half wait from the beginning of an attempt to its decision.
    ChangesWait,
    /// The giver gives only after the receiver has said that the offer is complete.
    GiveWhatIsComplete,
    /// The receiver says so only if it has as many entries as were sent.
    CountEntries,
    /// Entries of other attempts are refused.
    EntriesOfTheAttempt,
    /// Entries of an older attempt are removed before those of a newer one are taken.
    OldEntriesGoFirst,
    /// A late message of an older attempt does not replace a newer one.
    NewerAttemptStays,
    /// A partition that is held is not offered.
    HeldIsNotOffered,
    /// Copies of what was given away go before entries with these hashes come back.
    CopiesGoFirst,
    /// Entries that are offered are invisible.
    OfferIsInvisible,
    /// An offer that is not decided stays.
    PendingOfferStays,
    /// An owner does not answer about attempts of later owners.
    ReplacedOwnersDoNotKnow,
    /// The giver knows what it gave until the receiver has confirmed.
    GivenUntilConfirmed,
    /// Attempts of two owners differ.
    AttemptsHaveEpochs,
    /// The giver repeats that it has given until the receiver confirms.
    RepeatWhatIsGiven,
    /// A receiver asks about offers.
    Ask,
    /// An owner that was replaced cannot write (the engine's).
    FenceOldOwners,
}

/// All rules, or all but one.
#[derive(Clone, Copy)]
pub struct Rules {
    pub without: Option<Rule>,
}

impl Rules {
    pub fn has(self, rule: Rule) -> bool {
        self.without != Some(rule)
    }
}
