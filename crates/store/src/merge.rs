//! Partial updates: how operands of merges become values.

use crate::key::KeyRef;
use crate::memtable::Below;
use crate::record::{Op, Record};

/// Changes values by operands. Values and operands stay below [`VALUE_MAX`](crate::VALUE_MAX). A
/// table's records are only right with the operator that they were written for, so its name is kept
/// in the table.
pub trait MergeOperator: Send + Sync {
    /// Returns the name that the table keeps.
    fn name(&self) -> &str;

    /// Returns what `value` (none, if the key has none) becomes by `operand`.
    fn apply(&self, key: KeyRef<'_>, value: Option<&[u8]>, operand: &[u8]) -> Vec<u8>;

    /// Returns an operand that does what `first` and then `second` do.
    fn combine(&self, key: KeyRef<'_>, first: &[u8], second: &[u8]) -> Vec<u8>;
}

/// The records of one key, from the newest on, until its value is known.
pub(crate) struct Resolution<'a> {
    operator: Option<&'a dyn MergeOperator>,
    /// The operands so far, combined.
    operand: Option<Vec<u8>>,
}

impl<'a> Resolution<'a> {
    pub(crate) fn new(operator: Option<&'a dyn MergeOperator>) -> Self {
        Resolution { operator, operand: None }
    }

    /// Adds the operand of an older merge. A table without an operator has none; the newest counts.
    pub(crate) fn older(&mut self, key: KeyRef<'_>, operand: &[u8]) {
        self.operand = Some(match (self.operand.take(), self.operator) {
            (Some(newer), Some(operator)) => operator.combine(key, operand, &newer),
            (Some(newer), None) => newer,
            (None, _) => operand.to_vec(),
        });
    }

    /// Returns the record that says what the operands and what is below them say.
    pub(crate) fn into_record(self, key: KeyRef<'_>, below: Below<'_>) -> Record {
        let (op, value) = match (below, self.operand.is_some()) {
            (Below::Older, _) => (Op::Merge, self.operand.unwrap_or_default()),
            (Below::Nothing, false) => (Op::Delete, Vec::new()),
            (Below::Nothing, true) => (Op::Put, self.finish(key, None).unwrap_or_default()),
            (Below::Value(value), _) => {
                (Op::Put, self.finish(key, Some(value.to_vec())).unwrap_or_default())
            }
        };
        Record { key: key.to_key(), op, value }
    }

    /// Returns the value that the key has, given what it had before all operands.
    pub(crate) fn finish(self, key: KeyRef<'_>, value: Option<Vec<u8>>) -> Option<Vec<u8>> {
        match (self.operand, self.operator) {
            (Some(operand), Some(operator)) => {
                Some(operator.apply(key, value.as_deref(), &operand))
            }
            (Some(operand), None) => Some(operand),
            (None, _) => value,
        }
    }
}
