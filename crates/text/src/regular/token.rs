//! The words of regular expressions: what a character means, plain or behind a backslash, in a
//! syntax.

use super::node::Anchor;
use super::syntax::*;

/// A word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// The end of the expression.
    End,
    /// A character that stands for itself.
    Char(char),
    /// A backslash at the end.
    Backslash,
    /// `\1` and its like
    Reference(usize),
    /// The beginning of a group.
    Open,
    /// The end of a group.
    Close,
    /// The sign between alternatives.
    Alternative,
    /// `*`, `+` or `?`
    Repeat(char),
    /// `{`
    OpenInterval,
    /// `}`
    CloseInterval,
    /// `.`
    Dot,
    /// `[`
    Bracket,
    /// `^` and its like
    Anchor(Anchor),
    /// `\w`, `\W`, `\s` or `\S`
    Class(char),
}

impl Token {
    /// Returns the next word at a place of a pattern, and how many bytes it takes. `at_start` says
    /// that a `^` here is an anchor in all syntaxes.
    pub(super) fn next(pattern: &str, at: usize, syntax: Syntax, at_start: bool) -> (Self, usize) {
        let mut rest = pattern[at..].chars();
        let Some(c) = rest.next() else { return (Token::End, 0) };
        if c == '\\' {
            return match rest.next() {
                None => (Token::Backslash, 1),
                Some(quoted) => (Token::quoted(quoted, syntax), 1 + quoted.len_utf8()),
            };
        }
        let follows_newline = || syntax.has(NEWLINE_ALT) && pattern[..at].ends_with('\n');
        let token = match c {
            '\n' if syntax.has(NEWLINE_ALT) => Token::Alternative,
            '|' if !syntax.has(LIMITED_OPS) && syntax.has(NO_BK_VBAR) => Token::Alternative,
            '*' => Token::Repeat(c),
            '+' | '?' if !syntax.has(LIMITED_OPS) && !syntax.has(BK_PLUS_QM) => Token::Repeat(c),
            '{' if syntax.has(INTERVALS) && syntax.has(NO_BK_BRACES) => Token::OpenInterval,
            '}' if syntax.has(INTERVALS) && syntax.has(NO_BK_BRACES) => Token::CloseInterval,
            '(' if syntax.has(NO_BK_PARENS) => Token::Open,
            ')' if syntax.has(NO_BK_PARENS) => Token::Close,
            '[' => Token::Bracket,
            '.' => Token::Dot,
            '^' if at_start
                || at == 0
                || syntax.has(CONTEXT_INDEP_ANCHORS)
                || follows_newline() =>
            {
                Token::Anchor(Anchor::LineStart)
            }
            '$' if syntax.has(CONTEXT_INDEP_ANCHORS) || ends_branch(pattern, at + 1, syntax) => {
                Token::Anchor(Anchor::LineEnd)
            }
            c => Token::Char(c),
        };
        (token, c.len_utf8())
    }

    fn quoted(c: char, syntax: Syntax) -> Self {
        let has_bk_braces = syntax.has(INTERVALS) && !syntax.has(NO_BK_BRACES);
        match c {
            '|' if !syntax.has(LIMITED_OPS) && !syntax.has(NO_BK_VBAR) => Token::Alternative,
            '1'..='9' if !syntax.has(NO_BK_REFS) => Token::Reference(c as usize - '0' as usize),
            '(' if !syntax.has(NO_BK_PARENS) => Token::Open,
            ')' if !syntax.has(NO_BK_PARENS) => Token::Close,
            '+' | '?' if !syntax.has(LIMITED_OPS) && syntax.has(BK_PLUS_QM) => Token::Repeat(c),
            '{' if has_bk_braces => Token::OpenInterval,
            '}' if has_bk_braces => Token::CloseInterval,
            _ if syntax.has(NO_GNU_OPS) => Token::Char(c),
            'w' | 'W' | 's' | 'S' => Token::Class(c),
            '<' => Token::Anchor(Anchor::WordStart),
            '>' => Token::Anchor(Anchor::WordEnd),
            'b' => Token::Anchor(Anchor::WordEdge),
            'B' => Token::Anchor(Anchor::NoWordEdge),
            '`' => Token::Anchor(Anchor::Start),
            '\'' => Token::Anchor(Anchor::End),
            c => Token::Char(c),
        }
    }
}

/// Returns whether a branch ends at a place of a pattern.
fn ends_branch(pattern: &str, at: usize, syntax: Syntax) -> bool {
    // Never look behind a second '$', which would recurse.
    match &pattern[at..] {
        rest if rest.starts_with('$') => false,
        _ => {
            let (next, _) = Token::next(pattern, at, syntax, false);
            matches!(next, Token::End | Token::Alternative | Token::Close)
        }
    }
}
