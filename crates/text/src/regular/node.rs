//! Regular expressions as trees, and what the regex crate calls them.

use std::fmt::Write;

/// A part of a regular expression.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// Nothing.
    Empty,
    /// A character of a class of the regex crate.
    Set(String),
    /// A place.
    Anchor(Anchor),
    /// A group, by its number from 1 on.
    Group(usize, Box<Node>),
    /// A back-reference to the text that a group has matched.
    Reference(usize),
    /// A part, repeated so often at least, and at most.
    Repeat(Box<Node>, u16, Option<u16>),
    /// Parts behind each other.
    Sequence(Vec<Node>),
    /// One of several parts.
    Either(Vec<Node>),
}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    LineStart,
    LineEnd,
    Start,
    End,
    WordStart,
    WordEnd,
    WordEdge,
    NoWordEdge,
}

impl Anchor {
    /// Returns what the regex crate calls it.
    pub(super) fn to_regex(self) -> &'static str {
        match self {
            Anchor::LineStart => "(?m:^)",
            Anchor::LineEnd => "(?m:$)",
            Anchor::Start => "\\A",
            Anchor::End => "\\z",
            Anchor::WordStart => "\\b{start}",
            Anchor::WordEnd => "\\b{end}",
            Anchor::WordEdge => "\\b",
            Anchor::NoWordEdge => "\\B",
        }
    }
}

impl Node {
    /// Writes what the regex crate calls it. It has no back-references.
    pub(super) fn write_regex(&self, regex: &mut String) {
        match self {
            Node::Empty | Node::Reference(_) => {}
            Node::Set(class) => regex.push_str(class),
            Node::Anchor(anchor) => regex.push_str(anchor.to_regex()),
            Node::Group(_, inner) => write_group(inner, regex),
            Node::Repeat(inner, least, most) => {
                match **inner {
                    Node::Set(_) | Node::Group(..) => inner.write_regex(regex),
                    _ => write_group(inner, regex),
                }
                match (least, most) {
                    (0, None) => regex.push('*'),
                    (1, None) => regex.push('+'),
                    (0, Some(1)) => regex.push('?'),
                    (least, Some(most)) => {
                        write!(regex, "{{{least},{most}}}").expect("memory takes all")
                    }
                    (least, None) => write!(regex, "{{{least},}}").expect("memory takes all"),
                }
            }
            Node::Sequence(parts) => parts.iter().for_each(|part| part.write_regex(regex)),
            Node::Either(branches) => {
                for (number, branch) in branches.iter().enumerate() {
                    if number > 0 {
                        regex.push('|');
                    }
                    branch.write_regex(regex);
                }
            }
        }
    }
}

fn write_group(inner: &Node, regex: &mut String) {
    regex.push_str("(?:");
    inner.write_regex(regex);
    regex.push(')');
}
