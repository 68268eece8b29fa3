//! What a query asks: tests, joined by and, or and not.

use super::test::{Test, TextField};
use crate::records::inode::Inode;
use std::collections::BTreeSet;

/// What a query asks of files, in normal form: no And directly in an And, no Or directly in an Or,
/// at least two expressions in each, Not of nothing but tests that have no opposite, and the tests
/// that take less first.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// All of these are true.
    And(Vec<Expression>),
    /// At least one of these is true.
    Or(Vec<Expression>),
    /// The test fails, also because the file has nothing that it could be made of.
    Not(Test),
    /// The test passes.
    Test(Test),
}

/// A file that may be one that a query asks for.
#[derive(Clone, Copy)]
pub struct Candidate<'a> {
    /// Its inode.
    pub inode: &'a Inode,
    /// Its name, if [`Needs::name`] asks for it.
    pub name: &'a [u8],
    /// Its path from the directory that the query hangs below, without a '/' in front, if
    /// [`Needs::path`] asks for it.
    pub path: &'a [u8],
    /// Returns the value of an extended attribute, if there is one of this name.
    pub xattr: &'a dyn Fn(&[u8]) -> Option<Vec<u8>>,
}

/// What beyond the inode tells whether a file passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The name.
    pub name: bool,
    /// The path.
    pub path: bool,
    /// The extended attributes with these names.
    pub xattrs: BTreeSet<Vec<u8>>,
}

impl Expression {
    /// Returns whether a file is asked for. Extended attributes are looked at last, and only where
    /// nothing else has decided.
    pub fn matches(&self, candidate: &Candidate<'_>) -> bool {
        match self {
            Expression::And(all) => all.iter().all(|one| one.matches(candidate)),
            Expression::Or(any) => any.iter().any(|one| one.matches(candidate)),
            Expression::Not(test) => !test.passes(candidate),
            Expression::Test(test) => test.passes(candidate),
        }
    }

    /// Returns what of a [`Candidate`] is looked at beyond the inode.
    pub fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        self.collect_needs(&mut needs);
        needs
    }

    fn collect_needs(&self, needs: &mut Needs) {
        match self {
            Expression::And(parts) | Expression::Or(parts) => {
                parts.iter().for_each(|part| part.collect_needs(needs));
            }
            Expression::Not(test) | Expression::Test(test) => match test {
                Test::Text(TextField::Name | TextField::Extension, _) => needs.name = true,
                Test::Text(TextField::Path, _) => needs.path = true,
                Test::Xattr(name, _) => {
                    needs.xattrs.insert(name.clone());
                }
                _ => {}
            },
        }
    }

    /// Returns whether there can be a file that is asked for; `false` only if it is certain that
    /// there is none.
    pub fn is_possible(&self) -> bool {
        *self != Expression::Test(Test::Always(false))
    }
}
