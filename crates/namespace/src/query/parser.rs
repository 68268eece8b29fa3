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

use super::cursor::{Cursor, Operator, Value, shown};
use super::expression::Expression;
use super::moments::{self, Times};
use super::pattern::{Kind, Pattern};
use super::test::{Decimal, Field, Order, PermissionMatch, Span, Test, TextField, XattrTest};
use super::values::{self, Unit};
use super::{Component, Context, QueryError};
use crate::attributes::TEXT_BYTES_MAX;
use canopy_text::Error as TextError;

/// Parentheses and nots inside of each other.
const DEPTH_MAX: usize = 32;

/// Tests in one query: more than fit into a name, when a query shows itself too.
const TESTS_MAX: usize = 256;

/// Regular expressions in one query, each of which may take a megabyte.
const REGEXES_MAX: usize = 8;

type Result<T> = std::result::Result<T, QueryError>;

/// What a test is of.
enum Subject {
    Number(Field, Unit),
    User,
    Group,
    Type,
    Permissions(PermissionMatch),
    Time(Field),
    Age,
    Text(TextField, bool),
    Xattr(Vec<u8>),
}

pub(super) struct Parser<'a> {
    cursor: Cursor<'a>,
    context: &'a Context<'a>,
    depth: usize,
    tests: usize,
    regexes: usize,
}

impl<'a> Parser<'a> {
    /// Begins to read what is in the brackets.
    pub(super) fn new(text: &'a [u8], context: &'a Context<'a>) -> Self {
        Parser { cursor: Cursor::new(text), context, depth: 0, tests: 0, regexes: 0 }
    }

    /// Reads all of it.
    pub(super) fn component(mut self) -> Result<Component> {
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

    /// Reads since when, if that is told: a time, or a duration.
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
        while self.cursor.take("||") || self.cursor.take("|") || self.cursor.take_keyword("or") {
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
            let and = comma
                || self.cursor.take("&&")
                || self.cursor.take("&")
                || self.cursor.take_keyword("and");
            if !and {
                return Ok((Expression::all(parts), commas));
            }
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
            lower => match subject(lower) {
                Some(subject) => self.comparison(subject, &String::from_utf8_lossy(lower)),
                None => {
                    let name = Value { bytes: word.to_vec(), quoted: false, at };
                    self.xattr(word.to_vec(), &name)
                }
            },
        }
    }

    fn count_tests(&mut self, more: usize) -> Result<()> {
        self.tests += more;
        match self.tests > TESTS_MAX {
            true => Err(self.cursor.wrong(format!("more than {TESTS_MAX} tests"))),
            false => Ok(()),
        }
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
            return Err(place.wrong(unknown(&name)));
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
        let orders = order_of(operator).is_some();
        if is_set && orders {
            return Err(QueryError { message: "a set goes with = or ~".to_owned(), at });
        }
        self.count_tests(values.len() - 1)?;
        let tests = values.iter().map(|value| {
            self.compared(&subject, name, operator, value).map_err(|message| value.wrong(message))
        });
        let any = Expression::any(tests.collect::<Result<Vec<_>>>()?);
        Ok(if negated { any.negated() } else { any })
    }

    /// Returns the test of a value.
    fn compared(
        &mut self,
        subject: &Subject,
        name: &str,
        operator: Operator,
        value: &Value,
    ) -> std::result::Result<Expression, String> {
        let text = value.text();
        let only = |operators: &str| format!("{name} takes {operators}");
        let equal = || match operator {
            Operator::Equal => Ok(()),
            _ => Err(only("= and !=")),
        };
        let in_span = |field: Field, first: i128, last: i128| {
            let span = span(field, operator, first, last);
            let span = span.ok_or_else(|| only("=, !=, <, <=, > and >="))?;
            Ok(Expression::span(field, span))
        };
        let id = |field: Field, known: Option<u32>, what: &str| {
            let id = match known {
                Some(id) => i128::from(id),
                None => text
                    .parse::<u32>()
                    .map(i128::from)
                    .map_err(|_| format!("unknown {what} '{}'", value.shown()))?,
            };
            Ok(Expression::span(field, Span { least: id, most: id }))
        };
        match subject {
            Subject::Number(field, unit) => {
                let (first, last) = values::number(name, &text, *unit)?;
                in_span(*field, first, last)
            }
            Subject::User => {
                equal().and_then(|()| id(Field::Uid, (self.context.user)(&text), "user"))
            }
            Subject::Group => {
                equal().and_then(|()| id(Field::Gid, (self.context.group)(&text), "group"))
            }
            Subject::Type => equal().and_then(|()| Ok(Expression::types(values::types(&text)?))),
            Subject::Permissions(kind) => {
                equal()?;
                permissions(*kind, &text)
            }
            Subject::Time(field) => {
                let times = moments::times(&text, self.context)?;
                exact(times, operator, &text)?;
                in_span(*field, times.first_ns.into(), times.last_ns.into())
            }
            Subject::Age => self.age(operator, &text),
            Subject::Text(field, ignore_case) => {
                let pattern = self.pattern(operator, value, *ignore_case);
                let pattern = pattern.unwrap_or_else(|| Err(only("=, !=, ~, !~, =~ and !=~")))?;
                plausible(*field, &pattern)?;
                Ok(Expression::Test(Test::Text(*field, pattern)))
            }
            Subject::Xattr(name) => {
                let test = match self.pattern(operator, value, false) {
                    Some(pattern) => XattrTest::Value(pattern?),
                    None => ordered(operator, value)?,
                };
                Ok(Expression::Test(Test::Xattr(name.clone(), test)))
            }
        }
    }

    /// Returns the test of how long ago the contents were changed: the opposite order of times.
    fn age(&self, operator: Operator, text: &str) -> std::result::Result<Expression, String> {
        if !text.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(format!("'{text}' is no age: give one as in 30d"));
        }
        let then = moments::ago(&text.to_ascii_lowercase(), self.context)?;
        let opposite = match operator {
            Operator::Less => Operator::Greater,
            Operator::LessEqual => Operator::GreaterEqual,
            Operator::Greater => Operator::Less,
            Operator::GreaterEqual => Operator::LessEqual,
            _ => return Err("age takes <, <=, > and >=".to_owned()),
        };
        let (first, last) = (then.first_ns.into(), then.last_ns.into());
        let span = span(Field::Mtime, opposite, first, last);
        span.map(|span| Expression::span(Field::Mtime, span)).ok_or_else(String::new)
    }

    /// Returns the pattern that an operator makes of a value; `None` for operators of orders.
    fn pattern(
        &mut self,
        operator: Operator,
        value: &Value,
        ignore_case: bool,
    ) -> Option<std::result::Result<Pattern, String>> {
        let kind = match operator {
            Operator::Equal => Kind::Equal,
            Operator::Glob => Kind::Glob,
            Operator::Regex => Kind::Regex,
            _ => return None,
        };
        let is_pattern = value.bytes.iter().any(|byte| b"*?[\\".contains(byte));
        if kind == Kind::Equal && is_pattern && !value.quoted {
            let text = value.shown();
            return Some(Err(format!(
                "= compares as it is: give ~{text} for a pattern, or quote the value"
            )));
        }
        if kind == Kind::Regex {
            self.regexes += 1;
            if self.regexes > REGEXES_MAX {
                return Some(Err(format!("more than {REGEXES_MAX} regular expressions")));
            }
        }
        Some(Pattern::new(kind, &value.bytes, ignore_case).map_err(|error| match error {
            TextError::Regex { why, .. } => {
                format!("no regular expression: {}", why.to_ascii_lowercase())
            }
            error => error.to_string(),
        }))
    }
}

/// Returns what an attribute's name stands for.
fn subject(name: &[u8]) -> Option<Subject> {
    let name = std::str::from_utf8(name).ok()?;
    Some(match name {
        "size" => Subject::Number(Field::Size, Unit::Byte),
        "blocks" => Subject::Number(Field::Blocks, Unit::One),
        "allocated" => Subject::Number(Field::Blocks, Unit::Block),
        "uid" => Subject::Number(Field::Uid, Unit::One),
        "gid" => Subject::Number(Field::Gid, Unit::One),
        "user" | "owner" => Subject::User,
        "group" => Subject::Group,
        "project" => Subject::Number(Field::Project, Unit::One),
        "links" | "nlink" => Subject::Number(Field::Links, Unit::One),
        "inode" | "id" | "ino" | "inum" => Subject::Number(Field::Inode, Unit::One),
        "type" => Subject::Type,
        "perm" | "mode" => Subject::Permissions(PermissionMatch::Exactly),
        "perm-all" | "mode-all" => Subject::Permissions(PermissionMatch::All),
        "perm-any" | "mode-any" => Subject::Permissions(PermissionMatch::Any),
        "mtime" | "modified" => Subject::Time(Field::Mtime),
        "ctime" | "changed" => Subject::Time(Field::Ctime),
        "atime" | "accessed" => Subject::Time(Field::Atime),
        "btime" | "birth" | "created" => Subject::Time(Field::Btime),
        "age" => Subject::Age,
        name => {
            let plain = text_field(name).map(|field| Subject::Text(field, false));
            let any_case = || text_field(name.strip_prefix('i')?);
            return plain.or_else(|| Some(Subject::Text(any_case()?, true)));
        }
    })
}

fn text_field(name: &str) -> Option<TextField> {
    Some(match name {
        "name" => TextField::Name,
        "ext" | "extension" => TextField::Extension,
        "path" => TextField::Path,
        "target" => TextField::Target,
        _ => return None,
    })
}

impl Subject {
    fn example(&self) -> &'static str {
        match self {
            Subject::Number(Field::Size, _) => "size>1M",
            Subject::Number(_, Unit::Block) => "allocated>1M",
            Subject::Number(Field::Uid, _) => "uid=1000",
            Subject::Number(..) => "links>1",
            Subject::User => "user=ada",
            Subject::Group => "group=staff",
            Subject::Type => "type=fd",
            Subject::Permissions(_) => "perm-any=022",
            Subject::Time(_) => "mtime>-30d",
            Subject::Age => "age>30d",
            Subject::Text(..) => "name~*.h5",
            Subject::Xattr(_) => "user.project=x",
        }
    }
}

/// Returns whether Linux could have an extended attribute of this name.
fn is_xattr(name: &[u8]) -> bool {
    let prefixes: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system."];
    let rest = prefixes.iter().find_map(|prefix| name.strip_prefix(*prefix));
    rest.is_some_and(|rest| !rest.is_empty()) && name.len() <= TEXT_BYTES_MAX && !name.contains(&0)
}

/// Says that there is no such attribute, and what may have been meant.
fn unknown(name: &[u8]) -> String {
    let hint = match name {
        [b'a'..=b'z'] if values::types(&shown(name)).is_ok() => {
            "; several types are written as in type=fd"
        }
        name if name.contains(&b'.') => {
            "; extended attributes begin with user., trusted., security. or system."
        }
        _ => "; a value with a comma, a bar or a space in it goes into quotes",
    };
    format!("unknown attribute '{}'{hint}", shown(name))
}

fn order_of(operator: Operator) -> Option<Order> {
    Some(match operator {
        Operator::Less => Order::Less,
        Operator::LessEqual => Order::LessEqual,
        Operator::Greater => Order::Greater,
        Operator::GreaterEqual => Order::GreaterEqual,
        Operator::Equal | Operator::Glob | Operator::Regex => return None,
    })
}

/// Returns the values for which an operator is true of a value that stands for all from `first` to
/// `last`; `None` for operators of patterns. An amount between two values has the one behind it
/// first.
fn span(field: Field, operator: Operator, first: i128, last: i128) -> Option<Span> {
    let domain = field.domain();
    Some(match operator {
        Operator::Equal => Span { least: first, most: last },
        Operator::Less => Span { most: first - 1, ..domain },
        Operator::LessEqual => Span { most: last, ..domain },
        Operator::Greater => Span { least: last + 1, ..domain },
        Operator::GreaterEqual => Span { least: first, ..domain },
        Operator::Glob | Operator::Regex => return None,
    })
}

/// Refuses to ask for the very nanosecond that is so far from the present.
fn exact(times: Times, operator: Operator, text: &str) -> std::result::Result<(), String> {
    match times.relative && operator == Operator::Equal {
        true => Err(format!("'{text}' is a moment: give < or >, or a date")),
        false => Ok(()),
    }
}

fn permissions(kind: PermissionMatch, text: &str) -> std::result::Result<Expression, String> {
    let (kind, octal) = match text.strip_prefix('-') {
        // As find(1) writes it.
        Some(octal) if kind == PermissionMatch::Exactly => (PermissionMatch::All, octal),
        _ => (kind, text),
    };
    match (kind, values::permissions(octal)?) {
        (PermissionMatch::Any, 0) => Err("perm-any needs a bit, as in perm-any=022".to_owned()),
        (kind, bits) => Ok(Expression::Test(Test::Permissions(kind, bits))),
    }
}

/// Refuses what no text is as, and what is easily taken for something else.
fn plausible(field: TextField, pattern: &Pattern) -> std::result::Result<(), String> {
    let source = pattern.source();
    if field != TextField::Extension || pattern.kind() != Kind::Equal {
        return Ok(());
    }
    match source.iter().rposition(|byte| *byte == b'.') {
        _ if source.is_empty() => {
            Err("no extension is empty: give not ext~* for files without one".to_owned())
        }
        Some(0) => Err(format!("extensions come without the dot: {}", shown(&source[1..]))),
        Some(_) => {
            Err(format!("an extension is what follows the last dot: give name~*.{}", shown(source)))
        }
        None => Ok(()),
    }
}

/// Returns how an extended attribute is compared in an order: as a number, or as bytes if the value
/// is in quotes.
fn ordered(operator: Operator, value: &Value) -> std::result::Result<XattrTest, String> {
    let order = order_of(operator).ok_or("an extended attribute takes no such operator")?;
    if value.quoted {
        return Ok(XattrTest::Bytes(order, value.bytes.clone()));
    }
    let number = Decimal::parse(&value.bytes)
        .ok_or_else(|| format!("'{}' is no number: quote it to compare texts", value.shown()))?;
    Ok(XattrTest::Number(order, number))
}
