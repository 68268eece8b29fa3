//! What a rename of a directory needs beside its parts: that no directory gets into itself, and that a
//! directory that is replaced is empty, and stays so.
//!
//! Both are called when all parts are prepared, just before the decision. Whatever they lock elsewhere
//! has to last until the end of the try ([`Trial`]).

use crate::error::{Error, Result};
use crate::intents::decider::Rename;
use crate::intents::trial::Trial;
use canopy_namespace::Inode;

/// Fails if directories may not move to another one: `moved` to that of the new name, and `other`, if
/// it is a directory in an exchange, to that of the old one.
pub(crate) fn check_move(
    _trial: &Trial<'_>,
    _moved: &Inode,
    _other: Option<&Inode>,
    _rename: &Rename,
) -> Result<()> {
    Err(Error::NotYet("the move of a directory to another one".into()))
}

/// Fails unless a directory is empty. No name is added to it until the try ends.
pub(crate) fn check_replacement(_trial: &Trial<'_>, _replaced: &Inode) -> Result<()> {
    Err(Error::NotYet("the replacement of a directory".into()))
}
