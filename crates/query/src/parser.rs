//! Reads queries. The grammar, in which words have either case:
//!
//! ```text
//! component  = "@" value | "recent" [time] | "duplicates" | any
//! any        = all { ("or" | "|" | "||") all }
//! all        = one { ("and" | "&" | "&&" | ",") one }
//! one        = ("not" | "!") one | "(" any ")" | test
//! test       = "true" | "false" | "empty" | "has" "(" value ")" | xattr
//!            | attribute operator (value | "{" value { "," value } "}")
//! ```

use crate::comparison::{Subject, order_of};
use crate::cursor::{Cursor, Operator, Value, shown};
use crate::expression::Expression;
use crate::test::{Field, Span, Test, XattrTest};
use crate::{Component, Context, QueryError, moments, values};

/// Bytes of the longest name of an extended attribute.
const XATTR_NAME_BYTES_MAX: usize = 255;

/// Parentheses and nots inside of each other.
const DEPTH_MAX: usize = 32;

/// Tests in one query: more than fit into a name, when a query shows itself too.
const TESTS_MAX: usize = 256;

/// Regular expressions in one query, each of which may take a megabyte.
const REGEXES_MAX: usize = 8;

/// Queries with as many tests and regular expressions as one may have, that nested queries may
/// have together.
const NESTED_MAX: usize = 4;

/// Tests and regular expressions of nested queries, as far as they were read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    tests: usize,
    regexes: usize,
}

type Result<T> = std::result::Result<T, QueryError>;

pub(crate) struct Parser<'a> {
    cursor: Cursor<'a>,
    context: &'a Context<'a>,
    depth: usize,
    /// Those of this query.
    counts: Counts,
    /// Those of the queries that this one is nested in.
    others: Counts,
    /// Whether the last test was one of types, behind which a comma is easily meant for a set.
    after_type: bool,
    /// Whether a sign stands before this test, such as a comma, which a value may have too.
    after_sign: bool,
}

impl<'a> Parser<'a> {
    /// Begins to read what is in the brackets.
    pub(crate) fn new(text: &'a [u8], context: &'a Context<'a>, others: Counts) -> Self {
        let cursor = Cursor::new(text);
        let (after_type, after_sign) = (false, false);
        Parser {
            cursor,
            context,
            depth: 0,
            counts: Counts::default(),
            others,
            after_type,
            after_sign,
        }
    }

    /// Reads all of it. Returns the tests and regular expressions of all queries so far, too.
    pub(crate) fn counted(mut self) -> Result<(Component, Counts)> {
        let component = self.component()?;
        let Counts { tests, regexes } = self.counts;
        let counts =
            Counts { tests: self.others.tests + tests, regexes: self.others.regexes + regexes };
        Ok((component, counts))
    }

    fn component(&mut self) -> Result<Component> {
        let component = if self.cursor.take("@") {
            self.snapshot()?
        } else if self.cursor.take_keyword("recent") {
            self.recent()?
        } else if self.cursor.take_keyword("duplicates") {
            Component::Duplicates
        } else if self.cursor.peek().is_none() {
            return Err(self.cursor.wrong("an empty query: give a test, as in size>1M"));
        } else {
            Component::Search(self.any()?)
        };
        let Some(next) = self.cursor.peek() else { return Ok(component) };
        Err(self.cursor.wrong(match (&component, next) {
            (Component::Search(_), b')') => "a ')' without a '('".to_owned(),
            (Component::Search(_), _) => {
                format!("'and' or 'or' is missing before '{}'", shown(self.cursor.rest()))
            }
            _ => format!(
                "'{}' cannot stand here: nest queries, as in [size>1M]/[recent]",
                shown(self.cursor.rest())
            ),
        }))
    }

    fn snapshot(&mut self) -> Result<Component> {
        let name = self.cursor.value()?;
        match name.bytes.is_empty() || name.bytes.contains(&0) {
            true => Err(name.wrong("a snapshot has a name, as in [@monday]")),
            false => Ok(Component::Snapshot(name.bytes)),
        }
    }

    /// Reads the beginning of a span, if it is given: a time, or a duration.
    fn recent(&mut self) -> Result<Component> {
        if self.cursor.peek().is_none() {
            return Ok(Component::Recent { since_ns: None });
        }
        let value = self.cursor.value()?;
        let text = value.text();
        let is_duration = text.starts_with(|c: char| c.is_ascii_digit())
            && text.ends_with(|c: char| c.is_ascii_alphabetic())
            && !text.contains('-');
        let times = match is_duration {
            true => moments::ago(&text.to_ascii_lowercase(), self.context),
            false => moments::times(&text, self.context),
        };
        let times = times.map_err(|message| value.wrong(message))?;
        Ok(Component::Recent { since_ns: Some(times.first_ns) })
    }

    fn any(&mut self) -> Result<Expression> {
        let (first, mut commas) = self.all()?;
        let mut parts = vec![first];
        loop {
            let sign = self.cursor.take("||") || self.cursor.take("|");
            if !sign && !self.cursor.take_keyword("or") {
                break;
            }
            self.after_sign = sign;
            let (part, with_commas) = self.all()?;
            parts.push(part);
            commas |= with_commas;
        }
        if commas && parts.len() > 1 {
            // People read a comma both ways.
            return Err(self.cursor.wrong(
                "a comma beside 'or' may be read in two ways: write 'and', or use parentheses",
            ));
        }
        Ok(Expression::any(parts))
    }

    /// Reads what is joined by and. Whether a comma was among it comes with it.
    fn all(&mut self) -> Result<(Expression, bool)> {
        let mut parts = vec![self.one()?];
        let mut commas = false;
        loop {
            let comma = self.cursor.take(",");
            let sign = comma || self.cursor.take("&&") || self.cursor.take("&");
            if !sign && !self.cursor.take_keyword("and") {
                return Ok((Expression::all(parts), commas));
            }
            self.after_sign = sign;
            commas |= comma;
            parts.push(self.one()?);
        }
    }

    fn one(&mut self) -> Result<Expression> {
        if self.depth > DEPTH_MAX {
            return Err(self.cursor.wrong(format!("more than {DEPTH_MAX} levels")));
        }
        self.depth += 1;
        let one = if self.cursor.take_keyword("not") || self.cursor.take("!") {
            self.one()?.negated()
        } else if self.cursor.take("(") {
            let inner = self.any()?;
            if !self.cursor.take(")") {
                return Err(self.missing("a ')' is missing"));
            }
            inner
        } else {
            self.test()?
        };
        self.depth -= 1;
        Ok(one)
    }

    /// Says that something is missing here, before what else stands here.
    fn missing(&mut self, what: &str) -> QueryError {
        match self.cursor.peek() {
            None => self.cursor.wrong(what),
            Some(_) => {
                let rest = shown(self.cursor.rest());
                self.cursor.wrong(format!("{what} before '{rest}'"))
            }
        }
    }

    fn test(&mut self) -> Result<Expression> {
        self.count_tests(1)?;
        let start = self.cursor.clone();
        if matches!(self.cursor.peek(), Some(b'"' | b'\'')) {
            let name = self.cursor.value()?;
            return self.xattr(name.bytes.clone(), &name);
        }
        let at = self.cursor.at;
        let word = self.cursor.take_word();
        let lower = word.to_ascii_lowercase();
        match &lower[..] {
            b"" | b"and" | b"or" => {
                self.cursor = start;
                Err(self.missing("a test is missing"))
            }
            b"true" => Ok(Expression::always(true)),
            b"false" => Ok(Expression::always(false)),
            b"empty" => {
                let types = values::types("f").map_err(|message| self.cursor.wrong(message))?;
                let size = Expression::span(Field::Size, Span { least: 0, most: 0 });
                Ok(Expression::all([Expression::types(types), size]))
            }
            b"has" => self.has(),
            lower => match Subject::named(lower) {
                Some(subject) => self.comparison(subject, &String::from_utf8_lossy(lower)),
                None => {
                    let name = Value { bytes: word.to_vec(), quoted: false, at };
                    self.xattr(word.to_vec(), &name)
                }
            },
        }
    }

    fn count_tests(&mut self, more: usize) -> Result<()> {
        self.counts.tests += more;
        self.check_count(self.counts.tests, self.others.tests, TESTS_MAX, "tests")
    }

    fn count_regexes(&mut self, more: usize) -> Result<()> {
        self.counts.regexes += more;
        let (own, others) = (self.counts.regexes, self.others.regexes);
        self.check_count(own, others, REGEXES_MAX, "regular expressions")
    }

    fn check_count(&self, own: usize, others: usize, max: usize, name: &str) -> Result<()> {
        let all_max = NESTED_MAX * max;
        if own > max {
            return Err(self.cursor.wrong(format!("more than {max} {name}")));
        }
        if own + others > all_max {
            let message = format!("more than {all_max} {name} in nested queries");
            return Err(self.cursor.wrong(message));
        }
        Ok(())
    }

    fn has(&mut self) -> Result<Expression> {
        let wrong = "'has' takes an extended attribute, as in has(user.project)";
        if !self.cursor.take("(") {
            return Err(self.cursor.wrong(wrong));
        }
        let name = self.cursor.value()?;
        if !is_xattr(&name.bytes) || !self.cursor.take(")") {
            return Err(name.wrong(wrong));
        }
        Ok(Expression::Test(Test::Xattr(name.bytes, XattrTest::Exists)))
    }

    /// Reads what is asked of an extended attribute: nothing but that it exists, if no operator
    /// follows.
    fn xattr(&mut self, name: Vec<u8>, place: &Value) -> Result<Expression> {
        if !is_xattr(&name) {
            return Err(place.wrong(self.unknown(&name)));
        }
        let mut ahead = self.cursor.clone();
        match ahead.operator()? {
            Some(_) => self.comparison(Subject::Xattr(name), "an extended attribute"),
            None => Ok(Expression::Test(Test::Xattr(name, XattrTest::Exists))),
        }
    }

    /// Reads an operator and values.
    fn comparison(&mut self, subject: Subject, name: &str) -> Result<Expression> {
        let Some((operator, negated)) = self.cursor.operator()? else {
            let message =
                format!("{name} needs an operator and a value, as in {}", subject.example());
            return Err(self.missing(&message));
        };
        let at = self.cursor.at;
        let (values, is_set) = self.cursor.values()?;
        if is_set && order_of(operator).is_some() {
            return Err(QueryError { message: "a set goes with = or ~".to_owned(), at });
        }
        self.count_tests(values.len() - 1)?;
        self.count_regexes(if operator == Operator::Regex { values.len() } else { 0 })?;
        let test = |value: &Value| {
            let test = subject.compare(name, operator, value, self.context);
            test.map_err(|message| value.wrong(message))
        };
        let any = Expression::any(values.iter().map(test).collect::<Result<Vec<_>>>()?);
        self.after_type = matches!(subject, Subject::Type);
        Ok(if negated { any.negated() } else { any })
    }

    /// Says that there is no such attribute, and what may have been meant.
    fn unknown(&self, name: &[u8]) -> String {
        // An operator follows an attribute, not a part of the value before it.
        let is_compared = matches!(self.cursor.clone().operator(), Ok(Some(_)) | Err(_));
        let is_type = || values::types(&String::from_utf8_lossy(name)).is_ok();
        let hint = if self.after_type && !is_compared && is_type() {
            "several types are written as in type=fd"
        } else if name.contains(&b'.') {
            "extended attributes begin with 'user.', 'trusted.', 'security.' or 'system.'"
        } else if self.after_sign && !is_compared {
            "a value with a comma, a bar or a space in it goes into quotes"
        } else {
            "there are size, allocated, type, user, group, perm, mtime, age, name, ext, path, \
             links, user.NAME and others"
        };
        format!("unknown attribute '{}'; {hint}", shown(name))
    }
}

/// Returns whether Linux could have an extended attribute of this name.
fn is_xattr(name: &[u8]) -> bool {
    let prefixes: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system."];
    let rest = prefixes.iter().find_map(|prefix| name.strip_prefix(*prefix));
    rest.is_some_and(|rest| !rest.is_empty())
        && name.len() <= XATTR_NAME_BYTES_MAX
        && !name.contains(&0)
}
