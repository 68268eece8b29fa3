//! Regular expressions with back-references, matched by trying one way after the other.
//!
//! The tree becomes a program of small steps. Where it can go on in two ways, the second one waits
//! on a stack, with what has to be undone of the first. How many steps a text may take is limited:
//! there are expressions that take more than anybody can wait for.

use super::node::{Anchor, Node};
use super::parse::Tree;
use crate::characters::{Case, Characters};
use regex::Regex;

/// How many steps a text may take: some tenths of a second.
const STEPS_MAX: usize = 10_000_000;

/// The longest program.
const LENGTH_MAX: usize = 100_000;

/// A regular expression as a program.
#[derive(Debug)]
pub(super) struct Program {
    steps: Vec<Step>,
    sets: Vec<CharacterSet>,
    /// How many places a run remembers: the beginning and the end of each group, and where
    /// repetitions began.
    places: usize,
    case: Case,
    characters: Characters,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The next character is one of a set.
    Take(usize),
    /// This is such a place.
    Check(Anchor),
    /// Takes the text that a group matched once more; the number is where the group's beginning is
    /// remembered.
    Repeat(usize),
    /// Remembers this place.
    Remember(usize),
    /// Skips the next step if this is the remembered place: a repetition that matched nothing is
    /// not repeated again.
    Moved(usize),
    /// Goes on in one way and, if that fails, in the other one.
    Try(usize, usize),
    Jump(usize),
}

#[derive(Debug)]
struct CharacterSet {
    /// A bit for each character of ASCII.
    ascii: u128,
    others: Regex,
}

/// An item on the stack.
enum Waiting {
    /// Another way: a step and where in the text.
    Way(usize, usize),
    /// A place to be remembered again.
    Place(usize, Option<usize>),
}

impl Program {
    /// Makes the program of an expression. Fails in the words of regcomp(3).
    pub(super) fn new(
        tree: &Tree,
        case: Case,
        characters: Characters,
    ) -> Result<Self, &'static str> {
        let (steps, sets, places) = (Vec::new(), Vec::new(), 2 * (tree.groups + 1));
        let mut program = Program { steps, sets, places, case, characters };
        program.append(&tree.root)?;
        Ok(program)
    }

    fn push(&mut self, step: Step) -> Result<usize, &'static str> {
        self.steps.push(step);
        match self.steps.len() > LENGTH_MAX {
            true => Err("Regular expression too big"),
            false => Ok(self.steps.len() - 1),
        }
    }

    fn append(&mut self, node: &Node) -> Result<(), &'static str> {
        match node {
            Node::Empty => {}
            Node::Set(class) => {
                let set = CharacterSet::new(class).ok_or("Invalid regular expression")?;
                self.sets.push(set);
                self.push(Step::Take(self.sets.len() - 1))?;
            }
            Node::Anchor(anchor) => drop(self.push(Step::Check(*anchor))?),
            Node::Reference(group) => drop(self.push(Step::Repeat(2 * group))?),
            Node::Group(number, inner) => {
                self.push(Step::Remember(2 * number))?;
                self.append(inner)?;
                self.push(Step::Remember(2 * number + 1))?;
            }
            Node::Sequence(parts) => parts.iter().try_for_each(|part| self.append(part))?,
            Node::Either(branches) => {
                let mut ends = Vec::new();
                for branch in &branches[..branches.len() - 1] {
                    let begin = self.push(Step::Jump(0))?;
                    self.append(branch)?;
                    ends.push(self.push(Step::Jump(0))?);
                    self.steps[begin] = Step::Try(begin + 1, self.steps.len());
                }
                self.append(&branches[branches.len() - 1])?;
                let end = self.steps.len();
                ends.into_iter().for_each(|at| self.steps[at] = Step::Jump(end));
            }
            Node::Repeat(inner, least, most) => {
                (0..*least).try_for_each(|_| self.append(inner))?;
                match most {
                    Some(most) => self.append_optional(inner, most - least)?,
                    None => self.append_loop(inner)?,
                }
            }
        }
        Ok(())
    }

    fn append_optional(&mut self, inner: &Node, times: u16) -> Result<(), &'static str> {
        let mut begins = Vec::new();
        for _ in 0..times {
            begins.push(self.push(Step::Jump(0))?);
            self.append(inner)?;
        }
        let end = self.steps.len();
        begins.into_iter().for_each(|at| self.steps[at] = Step::Try(at + 1, end));
        Ok(())
    }

    fn append_loop(&mut self, inner: &Node) -> Result<(), &'static str> {
        let place = self.places;
        self.places += 1;
        let begin = self.push(Step::Jump(0))?;
        self.push(Step::Remember(place))?;
        self.append(inner)?;
        self.push(Step::Moved(place))?;
        self.push(Step::Jump(begin))?;
        self.steps[begin] = Step::Try(begin + 1, self.steps.len());
        Ok(())
    }

    /// Returns whether the whole text matches; `None` if that takes too many steps.
    pub(super) fn matches(&self, text: &str) -> Option<bool> {
        let mut places = vec![None; self.places];
        let mut waiting = vec![Waiting::Way(0, 0)];
        let mut left = STEPS_MAX;
        while let Some(next) = waiting.pop() {
            let (mut step, mut at) = match next {
                Waiting::Way(step, at) => (step, at),
                Waiting::Place(place, before) => {
                    places[place] = before;
                    continue;
                }
            };
            loop {
                left = left.checked_sub(1)?;
                let Some(todo) = self.steps.get(step) else {
                    if at == text.len() {
                        return Some(true);
                    }
                    break;
                };
                step += 1;
                match *todo {
                    Step::Take(set) => match text[at..].chars().next() {
                        Some(c) if self.sets[set].has(c) => at += c.len_utf8(),
                        _ => break,
                    },
                    Step::Check(anchor) if anchor.is_at(text, at) => {}
                    Step::Check(_) => break,
                    Step::Repeat(place) => match (places[place], places[place + 1]) {
                        (Some(begin), Some(end)) => {
                            match self.length_of(&text[begin..end], &text[at..]) {
                                Some(length) => at += length,
                                None => break,
                            }
                        }
                        _ => break,
                    },
                    Step::Remember(place) => {
                        waiting.push(Waiting::Place(place, places[place]));
                        places[place] = Some(at);
                    }
                    Step::Moved(place) => step += usize::from(places[place] == Some(at)),
                    Step::Try(first, second) => {
                        waiting.push(Waiting::Way(second, at));
                        step = first;
                    }
                    Step::Jump(to) => step = to,
                }
            }
        }
        Some(false)
    }

    /// Returns how many bytes of a text are the same as another one, if it begins with that.
    fn length_of(&self, same: &str, text: &str) -> Option<usize> {
        let mut rest = text.chars();
        let fold = |c: char| self.case.fold(c, self.characters);
        let is_same = same.chars().all(|c| rest.next().is_some_and(|d| fold(c) == fold(d)));
        is_same.then(|| text.len() - rest.as_str().len())
    }
}

impl CharacterSet {
    fn new(class: &str) -> Option<Self> {
        let others = Regex::new(&format!("(?s)\\A{class}\\z")).ok()?;
        let is_in = |c: &u8| others.is_match(char::from(*c).encode_utf8(&mut [0; 4]));
        let ascii = (0_u8..128).filter(is_in).fold(0, |bits, c| bits | 1_u128 << c);
        Some(CharacterSet { ascii, others })
    }

    fn has(&self, c: char) -> bool {
        match c.is_ascii() {
            true => self.ascii >> u32::from(c) & 1 == 1,
            false => self.others.is_match(c.encode_utf8(&mut [0; 4])),
        }
    }
}

impl Anchor {
    fn is_at(self, text: &str, at: usize) -> bool {
        let (before, behind) = (text[..at].chars().next_back(), text[at..].chars().next());
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        match self {
            Anchor::Start => before.is_none(),
            Anchor::End => behind.is_none(),
            Anchor::LineStart => matches!(before, None | Some('\n')),
            Anchor::LineEnd => matches!(behind, None | Some('\n')),
            Anchor::WordStart => !is_word(before) && is_word(behind),
            Anchor::WordEnd => is_word(before) && !is_word(behind),
            Anchor::WordEdge => is_word(before) != is_word(behind),
            Anchor::NoWordEdge => is_word(before) == is_word(behind),
        }
    }
}
