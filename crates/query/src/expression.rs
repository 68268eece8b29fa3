//! Conditions of entries: tests, joined by and, or and not.

use crate::test::{Field, Test, TextField};
use std::collections::BTreeSet;

/// A condition of entries, in normal form: no And directly in an And, no Or directly in an Or,
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

/// An entry that may be one that a condition is true of.
pub trait Candidate {
    /// Returns a number or a time; 0 for a birth that is not known.
    fn number(&self, field: Field) -> i128;

    /// Returns the type and the permissions, as in `st_mode`.
    fn mode(&self) -> u32;

    /// Returns the name, if [`Needs::name`] asks for it.
    fn name(&self) -> &[u8];

    /// Returns the path from the directory that the query hangs below, without a '/' in front, if
    /// [`Needs::path`] asks for it.
    fn path(&self) -> &[u8];

    /// Returns where a symbolic link leads; asked of nothing else.
    fn target(&self) -> &[u8];

    /// Returns the value of an extended attribute, if there is one of this name.
    fn xattr(&self, name: &[u8]) -> Option<Vec<u8>>;
}

/// Data beyond the inode that decide whether a file passes.
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
    pub fn matches(&self, candidate: &impl Candidate) -> bool {
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
        self.each_test(&mut |test| match test {
            Test::Text(TextField::Name | TextField::Extension, _) => needs.name = true,
            Test::Text(TextField::Path, _) => needs.path = true,
            Test::Xattr(name, _) => {
                needs.xattrs.insert(name.clone());
            }
            _ => {}
        });
        needs
    }

    /// Calls `visit` with every test.
    pub fn each_test<'a>(&'a self, visit: &mut dyn FnMut(&'a Test)) {
        match self {
            Expression::And(parts) | Expression::Or(parts) => {
                parts.iter().for_each(|part| part.each_test(visit));
            }
            Expression::Not(test) | Expression::Test(test) => visit(test),
        }
    }

    /// Returns whether there can be a file that is asked for; `false` only if it is certain that
    /// there is none.
    pub fn is_possible(&self) -> bool {
        *self != Expression::Test(Test::Always(false))
    }
}
