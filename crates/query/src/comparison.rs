//! Comparisons of tests: the subject, and the meaning of an operator with a value.

use crate::Context;
use crate::cursor::{Operator, Value, shown};
use crate::expression::Expression;
use crate::moments::{self, Times};
use crate::pattern::{Kind, Pattern};
use crate::test::{
    AttributeTest, Decimal, Field, Order, PermissionMatch, Span, Test, TextField, XattrTest,
};
use crate::values::{self, Unit};
use canopy_text::Error as TextError;

type Result<T> = std::result::Result<T, String>;

/// The subject of a test.
pub(crate) enum Subject {
    Number(Field, Unit),
    User,
    Group,
    Type,
    Permissions(PermissionMatch),
    Time(Field),
    Age,
    /// A text, and whether letters match those of the other case.
    Text(TextField, bool),
    Xattr(Vec<u8>),
}

impl Subject {
    /// Returns what an attribute's name stands for.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
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

    /// Returns a test for messages.
    pub(crate) fn example(&self) -> &'static str {
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

    /// Returns whether the operator, or its opposite, goes with it.
    fn takes(&self, operator: Operator) -> bool {
        let orders = order_of(operator).is_some();
        match self {
            Subject::Number(..) | Subject::Time(_) => orders || operator == Operator::Equal,
            Subject::Age => orders,
            Subject::Text(..) => !orders,
            Subject::Xattr(_) => true,
            _ => operator == Operator::Equal,
        }
    }

    fn operators(&self) -> &'static str {
        match self {
            Subject::Number(..) | Subject::Time(_) => "=, !=, <, <=, > and >=",
            Subject::Age => "<, <=, > and >=",
            Subject::Text(..) => "=, !=, ~, !~, =~ and !=~",
            _ => "= and !=",
        }
    }

    /// Returns the test of a value; `name` is what the query calls the attribute.
    pub(crate) fn compare(
        &self,
        name: &str,
        operator: Operator,
        value: &Value,
        context: &Context<'_>,
    ) -> Result<Expression> {
        let text = value.text();
        if !self.takes(operator) {
            return Err(format!("{name} takes {}", self.operators()));
        }
        match self {
            Subject::Number(field, unit) => {
                Ok(in_span(*field, operator, values::number(name, &text, *unit)?))
            }
            Subject::User => owner(Field::Uid, (context.user)(&text), "user", value),
            Subject::Group => owner(Field::Gid, (context.group)(&text), "group", value),
            Subject::Type => Ok(Expression::types(values::types(&text)?)),
            Subject::Permissions(kind) => permissions(*kind, &text),
            Subject::Time(field) => {
                let times = moments::times(&text, context)?;
                exact(times, operator, &text)?;
                Ok(in_span(*field, operator, (times.first_ns.into(), times.last_ns.into())))
            }
            Subject::Age => age(operator, &text, context),
            Subject::Text(field, ignore_case) => {
                let pattern = pattern(kind_of(operator), value, *ignore_case)?;
                plausible(*field, &pattern)?;
                Ok(Expression::Test(Test::Text(*field, pattern)))
            }
            Subject::Xattr(name) => {
                let test = match order_of(operator) {
                    Some(order) => ordered(order, value)?,
                    None => XattrTest::Value(pattern(kind_of(operator), value, false)?),
                };
                Ok(Expression::Test(Test::Xattr(name.clone(), test)))
            }
        }
    }
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

/// Returns the test of a number or time with a value that stands for a span, from its first to its
/// last number. If the value lies between two numbers, `first` is the number above it.
fn in_span(field: Field, operator: Operator, (first, last): (i128, i128)) -> Expression {
    let domain = field.domain();
    let span = match order_of(operator) {
        None => Span { least: first, most: last },
        Some(Order::Less) => Span { most: first - 1, ..domain },
        Some(Order::LessEqual) => Span { most: last, ..domain },
        Some(Order::Greater) => Span { least: last + 1, ..domain },
        Some(Order::GreaterEqual) => Span { least: first, ..domain },
    };
    Expression::span(field, span)
}

/// Returns the test of an owner who is known by name, or given by number.
fn owner(field: Field, known: Option<u32>, what: &str, value: &Value) -> Result<Expression> {
    let digits = value.bytes.iter().all(u8::is_ascii_digit);
    let number = || value.text().parse().ok().filter(|_| digits);
    let id: u32 =
        known.or_else(number).ok_or_else(|| format!("unknown {what} '{}'", value.shown()))?;
    Ok(Expression::span(field, Span { least: id.into(), most: id.into() }))
}

/// Returns the test of how long ago the contents were changed: the opposite order of times.
fn age(operator: Operator, text: &str, context: &Context<'_>) -> Result<Expression> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("'{text}' is not an age: give one as in 30d"));
    }
    let then = moments::ago(&text.to_ascii_lowercase(), context)?;
    let opposite = match operator {
        Operator::Less => Operator::Greater,
        Operator::LessEqual => Operator::GreaterEqual,
        Operator::Greater => Operator::Less,
        Operator::GreaterEqual => Operator::LessEqual,
        other => other,
    };
    Ok(in_span(Field::Mtime, opposite, (then.first_ns.into(), then.last_ns.into())))
}

/// Returns how an operator reads a pattern; what has no pattern is taken as it is.
fn kind_of(operator: Operator) -> Kind {
    match operator {
        Operator::Glob => Kind::Glob,
        Operator::Regex => Kind::Regex,
        _ => Kind::Equal,
    }
}

fn pattern(kind: Kind, value: &Value, ignore_case: bool) -> Result<Pattern> {
    let is_pattern = value.bytes.iter().any(|byte| b"*?[\\".contains(byte));
    if kind == Kind::Equal && is_pattern && !value.quoted {
        let text = value.shown();
        return Err(format!("= compares as it is: give ~{text} for a pattern, or quote the value"));
    }
    Pattern::new(kind, &value.bytes, ignore_case).map_err(|error| match error {
        TextError::Regex { why, .. } => {
            format!("no regular expression: {}", why.to_ascii_lowercase())
        }
        error => error.to_string(),
    })
}

/// Returns the order that an operator asks for, if it does.
pub(crate) fn order_of(operator: Operator) -> Option<Order> {
    Some(match operator {
        Operator::Less => Order::Less,
        Operator::LessEqual => Order::LessEqual,
        Operator::Greater => Order::Greater,
        Operator::GreaterEqual => Order::GreaterEqual,
        Operator::Equal | Operator::Glob | Operator::Regex => return None,
    })
}

/// Refuses to ask for the very nanosecond that is so far from the present.
fn exact(times: Times, operator: Operator, text: &str) -> Result<()> {
    match times.relative && operator == Operator::Equal {
        true => Err(format!("'{text}' is a moment: give < or >, or a date")),
        false => Ok(()),
    }
}

fn permissions(kind: PermissionMatch, text: &str) -> Result<Expression> {
    let (kind, octal) = match text.strip_prefix('-') {
        // As find(1) writes it.
        Some(octal) if kind == PermissionMatch::Exactly => (PermissionMatch::All, octal),
        _ => (kind, text),
    };
    match (kind, values::permissions(octal)?) {
        (PermissionMatch::Any, 0) => Err("perm-any needs a bit, as in perm-any=022".to_owned()),
        (kind, bits) => Ok(AttributeTest::Permissions(kind, bits).into()),
    }
}

/// Refuses what no text is as, and what is easily taken for something else.
fn plausible(field: TextField, pattern: &Pattern) -> Result<()> {
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
fn ordered(order: Order, value: &Value) -> Result<XattrTest> {
    if value.quoted {
        return Ok(XattrTest::Bytes(order, value.bytes.clone()));
    }
    let number = Decimal::parse(&value.bytes)
        .ok_or_else(|| format!("'{}' is not a number: quote it to compare texts", value.shown()))?;
    Ok(XattrTest::Number(order, number))
}
