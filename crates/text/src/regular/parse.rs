//! From regular expressions to trees, by the grammar of the C library's regcomp(3).

use super::node::Node;
use super::syntax::*;
use super::token::Token;
use crate::brackets::{Rules, Wrong, of_regex};
use crate::characters::{Case, Characters, Set};

/// How deep groups may lie in each other, and how often a repetition may be repeated.
const NESTING_MAX: usize = 100;

/// The largest bound of an interval.
const REPEATS_MAX: u16 = 0x7fff;

const TOO_BIG: &str = "Regular expression too big";
const NOT_REPEATABLE: &str = "Invalid preceding regular expression";
const INTERVAL_CONTENT: &str = "Invalid content of \\{\\}";

type Result<T, E = &'static str> = std::result::Result<T, E>;

/// A regular expression as a tree.
pub(super) struct Tree {
    pub(super) root: Node,
    /// How many groups there are.
    pub(super) groups: usize,
    /// Whether there are back-references.
    pub(super) refers_back: bool,
}

/// Parses a pattern, of which each character is one of `characters`. Fails in the words of
/// regcomp(3).
pub(super) fn parse(
    pattern: &str,
    syntax: Syntax,
    case: Case,
    characters: Characters,
) -> Result<Tree> {
    let mut parser = Parser {
        pattern,
        syntax,
        case,
        characters,
        at: 0,
        token: Token::End,
        groups: 0,
        closed: 0,
        refers_back: false,
    };
    parser.advance(true);
    let root = parser.alternatives(0)?;
    Ok(Tree { root, groups: parser.groups, refers_back: parser.refers_back })
}

struct Parser<'a> {
    pattern: &'a str,
    syntax: Syntax,
    case: Case,
    characters: Characters,
    /// Where the rest begins, behind `token`.
    at: usize,
    token: Token,
    /// How many groups have begun.
    groups: usize,
    /// A bit for each group that back-references may name here.
    closed: u16,
    refers_back: bool,
}

impl Parser<'_> {
    /// Reads the next token. `at_start` says that a `^` there is an anchor in all syntaxes.
    fn advance(&mut self, at_start: bool) {
        let (token, length) = Token::next(self.pattern, self.at, self.syntax, at_start);
        self.token = token;
        self.at += length;
    }

    fn ends_branch(&self, depth: usize) -> bool {
        match self.token {
            Token::Alternative | Token::End => true,
            Token::Close => depth > 0,
            _ => false,
        }
    }

    fn alternatives(&mut self, depth: usize) -> Result<Node> {
        let closed_before = self.closed;
        let mut branches = vec![self.branch(depth)?];
        while self.token == Token::Alternative {
            self.advance(true);
            // A branch cannot refer to groups that an earlier branch has closed.
            let closed = std::mem::replace(&mut self.closed, closed_before);
            branches.push(match self.ends_branch(depth) {
                true => Node::Empty,
                false => self.branch(depth)?,
            });
            self.closed |= closed;
        }
        Ok(match branches.len() {
            1 => branches.remove(0),
            _ => Node::Either(branches),
        })
    }

    fn branch(&mut self, depth: usize) -> Result<Node> {
        let mut parts = vec![self.part(depth)?];
        while !self.ends_branch(depth) {
            parts.push(self.part(depth)?);
        }
        parts.retain(|part| !matches!(part, Node::Empty));
        Ok(match parts.len() {
            0 => Node::Empty,
            1 => parts.remove(0),
            _ => Node::Sequence(parts),
        })
    }

    /// Parses one part with what repeats it.
    fn part(&mut self, depth: usize) -> Result<Node> {
        while let Token::Repeat(_) | Token::OpenInterval = self.token {
            let is_interval = self.token == Token::OpenInterval;
            let dup_is_wrong = self.syntax.has(CONTEXT_INVALID_DUP);
            if dup_is_wrong && is_interval || !dup_is_wrong && self.syntax.has(CONTEXT_INVALID_OPS)
            {
                return Err(NOT_REPEATABLE);
            }
            if !self.syntax.has(CONTEXT_INDEP_OPS) {
                break;
            }
            self.advance(false);
        }
        let mut node = match self.token {
            Token::Char(c) => self.literal(c),
            Token::Open => self.group(depth + 1)?,
            Token::Bracket => self.bracket()?,
            Token::Reference(number) => self.reference(number)?,
            Token::Repeat(c) => self.literal(c),
            Token::OpenInterval => self.literal('{'),
            Token::CloseInterval => self.literal('}'),
            Token::Close if self.syntax.has(UNMATCHED_RIGHT_PAREN_ORD) => self.literal(')'),
            Token::Close => return Err("Unmatched ) or \\)"),
            Token::Anchor(anchor) => {
                // Nothing repeats an anchor.
                self.advance(true);
                return Ok(Node::Anchor(anchor));
            }
            Token::Dot => Node::Set(self.dot()),
            Token::Class(letter) => Node::Set(self.class(letter)),
            Token::Alternative | Token::End => return Ok(Node::Empty),
            Token::Backslash => return Err("Trailing backslash"),
        };
        self.advance(false);
        let mut repeats = 0;
        while let Token::Repeat(_) | Token::OpenInterval = self.token {
            repeats += 1;
            node = self.repeat(node)?;
            let repeats_again = matches!(self.token, Token::Repeat('*') | Token::OpenInterval);
            if self.syntax.has(CONTEXT_INVALID_DUP) && repeats_again {
                return Err(NOT_REPEATABLE);
            }
            if repeats > NESTING_MAX {
                return Err(TOO_BIG);
            }
        }
        Ok(node)
    }

    fn literal(&self, c: char) -> Node {
        Node::Set(Set::only(c, self.characters, self.case))
    }

    fn group(&mut self, depth: usize) -> Result<Node> {
        if depth > NESTING_MAX {
            return Err(TOO_BIG);
        }
        self.groups += 1;
        let number = self.groups;
        self.advance(true);
        let inner = match self.token {
            Token::Close => Node::Empty,
            _ => self.alternatives(depth)?,
        };
        if self.token != Token::Close {
            return Err("Unmatched ( or \\(");
        }
        if number <= 9 {
            self.closed |= 1 << number;
        }
        Ok(Node::Group(number, Box::new(inner)))
    }

    fn reference(&mut self, number: usize) -> Result<Node> {
        if self.closed >> number & 1 == 0 {
            return Err("Invalid back reference");
        }
        self.refers_back = true;
        Ok(Node::Reference(number))
    }

    fn bracket(&mut self) -> Result<Node> {
        let rules = Rules {
            classes: self.syntax.has(CHAR_CLASSES),
            empty_ranges: !self.syntax.has(NO_EMPTY_RANGES),
            backslash: self.syntax.has(BACKSLASH_ESCAPE_IN_LISTS),
            case: self.case,
            characters: self.characters,
        };
        let (class, length) = of_regex(&self.pattern[self.at..], rules).map_err(Wrong::message)?;
        self.at += length;
        Ok(Node::Set(class))
    }

    fn dot(&self) -> String {
        let mut none = Set::new(self.characters, Case::Matters);
        if !self.syntax.has(DOT_NEWLINE) {
            none.add_range('\n', '\n');
        }
        none.to_class(true)
    }

    /// Returns the class of `\w`, `\s` or their complements.
    fn class(&self, letter: char) -> String {
        let mut set = Set::new(self.characters, Case::Matters);
        let is_word = letter.eq_ignore_ascii_case(&'w');
        set.add_class(if is_word { "alnum" } else { "space" });
        if is_word {
            set.add_range('_', '_');
        }
        set.to_class(letter.is_ascii_uppercase())
    }

    /// Takes what repeats a part.
    fn repeat(&mut self, node: Node) -> Result<Node> {
        let (least, most) = match self.token {
            Token::Repeat('*') => (0, None),
            Token::Repeat('+') => (1, None),
            Token::Repeat(_) => (0, Some(1)),
            _ => match self.interval()? {
                Some(bounds) => bounds,
                None => return Ok(node),
            },
        };
        self.advance(false);
        Ok(match node {
            Node::Empty => Node::Empty,
            // Removed, but the groups in it keep their numbers.
            _ if most == Some(0) => Node::Empty,
            // Repeated without bound, it is the same again.
            Node::Repeat(inner, before @ (0 | 1), None) if most.is_none() && least <= 1 => {
                Node::Repeat(inner, before.min(least), None)
            }
            node => Node::Repeat(Box::new(node), least, most),
        })
    }

    /// Takes an interval whose brace was just read. Returns its bounds, or `None` if the brace
    /// turns out to be itself.
    fn interval(&mut self) -> Result<Option<(u16, Option<u16>)>> {
        let begin = self.at;
        let mut least = self.number();
        if least == Number::None {
            match self.token {
                // Without a lower bound it is 0.
                Token::Char(',') => least = Number::Some(0),
                _ => return Err(INTERVAL_CONTENT),
            }
        }
        let most = match self.token {
            _ if least == Number::Wrong => Number::Wrong,
            Token::CloseInterval => least,
            Token::Char(',') => self.number(),
            _ => Number::Wrong,
        };
        if least == Number::Wrong || most == Number::Wrong {
            if !self.syntax.has(INVALID_INTERVAL_ORD) {
                return Err(match self.token {
                    Token::End => "Unmatched \\{",
                    _ => INTERVAL_CONTENT,
                });
            }
            self.at = begin;
            self.token = Token::Char('{');
            return Ok(None);
        }
        let least = least.value().unwrap_or(0);
        if most.value().is_some_and(|most| least > most) || self.token != Token::CloseInterval {
            return Err(INTERVAL_CONTENT);
        }
        if most.value().unwrap_or(least) > REPEATS_MAX {
            return Err(TOO_BIG);
        }
        Ok(Some((least, most.value())))
    }

    /// Takes a number up to a comma or the end of the interval.
    fn number(&mut self) -> Number {
        let mut number = Number::None;
        loop {
            self.advance(false);
            match self.token {
                Token::End => return Number::Wrong,
                Token::CloseInterval | Token::Char(',') => return number,
                Token::Char(c) if c.is_ascii_digit() && number != Number::Wrong => {
                    let digit = c as u16 - '0' as u16;
                    let before = number.value().unwrap_or(0).min(REPEATS_MAX / 10 + 1);
                    number = Number::Some((before * 10 + digit).min(REPEATS_MAX + 1));
                }
                _ => number = Number::Wrong,
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Number {
    None,
    Some(u16),
    Wrong,
}

impl Number {
    fn value(self) -> Option<u16> {
        match self {
            Number::Some(number) => Some(number),
            Number::None | Number::Wrong => None,
        }
    }
}
