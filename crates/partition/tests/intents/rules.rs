//! The rules of intents, each of which can be left out.

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Other changes of names wait while the decider has locked them.
    DeciderLocks,
    /// Other changes of names wait while a participant is prepared.
    ParticipantLocks,
    /// The decider decides only once every participant is prepared.
    CommitWhatIsPrepared,
    /// A part that is prepared is invisible.
    PreparedIsInvisible,
    /// A reader of a name that is prepared asks for the decision first.
    ReadersAsk,
    /// An intent that is running is not aborted, by the word of its decider.
    RunningIsPending,
    /// A prepared part stays while the decision is pending.
    PendingStays,
    /// Each preparation of an intent has a number of its own.
    FreshPreparations,
    /// The decider knows its decision until all participants have confirmed.
    KnownUntilConfirmed,
    /// An owner does not answer about intents of later owners.
    ReplacedOwnersDoNotKnow,
    /// An owner does not confirm what a later owner has prepared.
    ReplacedOwnersDoNotConfirm,
    /// Intents of two owners differ.
    IntentsHaveEpochs,
    /// The decider repeats its decision until all participants have confirmed.
    Repeat,
    /// A participant asks about what it has prepared.
    Ask,
    /// A change gives up what it has where it would have to wait for an older one.
    YoungerGivesUp,
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
