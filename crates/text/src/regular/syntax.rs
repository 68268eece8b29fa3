//! The syntaxes of `-regextype`: which of the choices that regcomp(3) has each one makes. The
//! choices have their names and their meaning from the C library's `regex.h`.

use crate::error::{Error, Result};

/// A syntax of regular expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syntax(u32);

/// A choice.
#[derive(Clone, Copy)]
pub(super) struct Choice(u32);

/// A backslash quotes in brackets.
pub(super) const BACKSLASH_ESCAPE_IN_LISTS: Choice = Choice(1 << 0);
/// `\+` and `\?` are operators, and `+` and `?` are not.
pub(super) const BK_PLUS_QM: Choice = Choice(1 << 1);
/// There are classes such as `[:alpha:]`.
pub(super) const CHAR_CLASSES: Choice = Choice(1 << 2);
/// `^` and `$` are anchors wherever they stand.
pub(super) const CONTEXT_INDEP_ANCHORS: Choice = Choice(1 << 3);
/// Operators of repetition with nothing to repeat are left out.
pub(super) const CONTEXT_INDEP_OPS: Choice = Choice(1 << 4);
/// Operators of repetition with nothing to repeat are wrong.
pub(super) const CONTEXT_INVALID_OPS: Choice = Choice(1 << 5);
/// An interval with nothing to repeat is wrong, and what repeats a repetition.
pub(super) const CONTEXT_INVALID_DUP: Choice = Choice(1 << 6);
/// A dot matches the end of a line.
pub(super) const DOT_NEWLINE: Choice = Choice(1 << 7);
/// There are intervals.
pub(super) const INTERVALS: Choice = Choice(1 << 8);
/// `\+`, `\?` and `\|` are not operators.
pub(super) const LIMITED_OPS: Choice = Choice(1 << 9);
/// An end of a line stands between alternatives.
pub(super) const NEWLINE_ALT: Choice = Choice(1 << 10);
/// `{` is an operator, and `\{` is not.
pub(super) const NO_BK_BRACES: Choice = Choice(1 << 11);
/// `(` is an operator, and `\(` is not.
pub(super) const NO_BK_PARENS: Choice = Choice(1 << 12);
/// There are no back-references.
pub(super) const NO_BK_REFS: Choice = Choice(1 << 13);
/// `|` is an operator, and `\|` is not.
pub(super) const NO_BK_VBAR: Choice = Choice(1 << 14);
/// A range that ends before it begins is wrong.
pub(super) const NO_EMPTY_RANGES: Choice = Choice(1 << 15);
/// A `)` that closes nothing is itself.
pub(super) const UNMATCHED_RIGHT_PAREN_ORD: Choice = Choice(1 << 16);
/// There is no `\w` and its like.
pub(super) const NO_GNU_OPS: Choice = Choice(1 << 17);
/// A `{` that begins no interval is itself.
pub(super) const INVALID_INTERVAL_ORD: Choice = Choice(1 << 18);

impl Syntax {
    /// find's own, and that of Emacs: `\(`, `\|`, `+`, `?`, no intervals.
    pub const EMACS: Syntax = Syntax(0);
    /// `(`, `|`, `+`, `?`, `{`.
    pub const EXTENDED: Syntax = POSIX
        .with(CONTEXT_INDEP_ANCHORS)
        .with(CONTEXT_INDEP_OPS)
        .with(NO_BK_BRACES)
        .with(NO_BK_PARENS)
        .with(NO_BK_VBAR)
        .with(CONTEXT_INVALID_OPS)
        .with(UNMATCHED_RIGHT_PAREN_ORD);

    /// Returns the syntax that `-regextype` names.
    pub fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "findutils-default" => Self::EMACS.with(DOT_NEWLINE),
            "emacs" => Self::EMACS,
            "ed" | "posix-basic" | "sed" => BASIC,
            "grep" => BASIC.with(NEWLINE_ALT).without(CONTEXT_INVALID_DUP),
            "posix-minimal-basic" => POSIX.with(LIMITED_OPS),
            "posix-extended" => Self::EXTENDED,
            "posix-egrep" | "egrep" => Self::EXTENDED
                .with(INVALID_INTERVAL_ORD)
                .with(NEWLINE_ALT)
                .without(CONTEXT_INVALID_OPS),
            "gnu-awk" => Self::EXTENDED
                .with(BACKSLASH_ESCAPE_IN_LISTS)
                .with(INVALID_INTERVAL_ORD)
                .without(CONTEXT_INDEP_OPS)
                .without(CONTEXT_INVALID_OPS),
            "posix-awk" => Self::EXTENDED
                .with(BACKSLASH_ESCAPE_IN_LISTS)
                .with(NO_GNU_OPS)
                .with(INVALID_INTERVAL_ORD),
            "awk" => AWK,
            _ => return Err(Error::Syntax(name.to_owned())),
        })
    }

    const fn with(self, choice: Choice) -> Self {
        Syntax(self.0 | choice.0)
    }

    const fn without(self, choice: Choice) -> Self {
        Syntax(self.0 & !choice.0)
    }

    pub(super) fn has(self, choice: Choice) -> bool {
        self.0 & choice.0 != 0
    }
}

const POSIX: Syntax =
    Syntax(0).with(CHAR_CLASSES).with(DOT_NEWLINE).with(INTERVALS).with(NO_EMPTY_RANGES);

const BASIC: Syntax = POSIX.with(BK_PLUS_QM).with(CONTEXT_INVALID_DUP);

const AWK: Syntax = Syntax(0)
    .with(BACKSLASH_ESCAPE_IN_LISTS)
    .with(NO_BK_PARENS)
    .with(NO_BK_REFS)
    .with(NO_BK_VBAR)
    .with(NO_EMPTY_RANGES)
    .with(DOT_NEWLINE)
    .with(CONTEXT_INDEP_ANCHORS)
    .with(CHAR_CLASSES)
    .with(UNMATCHED_RIGHT_PAREN_ORD)
    .with(NO_GNU_OPS);
