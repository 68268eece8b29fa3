//! The rules of shares, each of which can be left out.

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The authority records a base before it grants it.
    RecordBeforeGrant,
    /// A server records its lower base before it replies.
    LowerBeforeReply,
    /// A server acts on no message of an earlier round than its latest.
    RoundsGrow,
    /// The authority believes only the reply to its last message.
    LastReplyCounts,
    /// Rounds of two owners differ, and those of the later owner are greater.
    RoundsHaveEpochs,
    /// Both servers note a move.
    MovesAreNoted,
    /// A reply to a collection has the base that the server has.
    RepliesAreTrue,
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
