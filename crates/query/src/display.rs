//! Text of queries: a query with an equal meaning, whenever it is read, that can be a component of
//! a path.

use crate::Component;
use crate::expression::Expression;
use crate::pattern::{Kind, Pattern};
use crate::test::{AttributeTest, Decimal, Field, PermissionMatch, Span, Test, Types, XattrTest};
use canopy_text::safe::turns_text;
use std::fmt::{self, Display, Formatter, Write};

/// Returns a query for a message: what can be printed as it is, and all else escaped.
pub fn shown(query: &[u8]) -> String {
    let mut shown = String::with_capacity(query.len());
    for chunk in query.utf8_chunks() {
        for c in chunk.valid().chars() {
            let is_hidden = c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
            match is_hidden || c == '\\' || turns_text(c) {
                true if c.is_ascii() => {
                    shown.extend(escaped(c.encode_utf8(&mut [0; 4]).as_bytes()))
                }
                true => shown.extend(c.escape_unicode()),
                false => shown.push(c),
            }
        }
        shown.extend(escaped(chunk.invalid()));
    }
    shown
}

fn escaped(bytes: &[u8]) -> impl Iterator<Item = char> {
    bytes.escape_ascii().map(char::from)
}

impl Display for Component {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Component::Search(expression) => write!(f, "[{expression}]"),
            Component::Snapshot(name) => write!(f, "[@{}]", Quoted(name, "")),
            Component::Recent { since_ns: None } => write!(f, "[recent]"),
            Component::Recent { since_ns: Some(time_ns) } => {
                write!(f, "[recent {}]", Seconds((*time_ns).into()))
            }
            Component::Duplicates => write!(f, "[duplicates]"),
        }
    }
}

impl Display for Expression {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Expression::And(parts) => separated(f, parts, " and ", |f, part| match part {
                Expression::Or(_) => write!(f, "({part})"),
                _ => write!(f, "{part}"),
            }),
            Expression::Or(parts) => separated(f, parts, " or ", |f, part| write!(f, "{part}")),
            Expression::Not(test) => test.show(f, true),
            Expression::Test(test) => test.show(f, false),
        }
    }
}

impl Display for Test {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.show(f, false)
    }
}

fn separated(
    f: &mut Formatter<'_>,
    parts: &[Expression],
    separator: &str,
    show: impl Fn(&mut Formatter<'_>, &Expression) -> fmt::Result,
) -> fmt::Result {
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            f.write_str(separator)?;
        }
        show(f, part)?;
    }
    Ok(())
}

impl Test {
    /// Shows the test or its opposite. Types are never negated, and spans only of times that may be
    /// unknown.
    fn show(&self, f: &mut Formatter<'_>, negated: bool) -> fmt::Result {
        let not = if negated { "!" } else { "" };
        match self {
            Test::Always(passes) => write!(f, "{passes}"),
            Test::Attribute(test) => test.show(f, negated),
            Test::Text(field, pattern) => {
                let case = if pattern.ignores_case() { "i" } else { "" };
                write!(f, "{case}{}{not}{pattern}", field.name())
            }
            Test::Xattr(name, test) => show_xattr(f, name, test, negated),
        }
    }
}

impl AttributeTest {
    fn show(self, f: &mut Formatter<'_>, negated: bool) -> fmt::Result {
        match self {
            AttributeTest::Span(field, span) if negated => {
                write!(f, "not ({})", ShownSpan(field, span))
            }
            AttributeTest::Span(field, span) => write!(f, "{}", ShownSpan(field, span)),
            AttributeTest::Type(types) => show_types(f, types),
            AttributeTest::Permissions(kind, bits) => {
                let name = match kind {
                    PermissionMatch::Exactly => "perm",
                    PermissionMatch::All => "perm-all",
                    PermissionMatch::Any => "perm-any",
                };
                write!(f, "{name}{}={bits:o}", if negated { "!" } else { "" })
            }
        }
    }
}

struct ShownSpan(Field, Span);

impl Display for ShownSpan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ShownSpan(field, span) = *self;
        let (name, domain) = (field.name(), field.domain());
        let value = |value: i128| match field.is_time() {
            true => Seconds(value).to_string(),
            false => value.to_string(),
        };
        let (least, most) = (value(span.least), value(span.most));
        match (span.least == domain.least, span.most == domain.most) {
            _ if span.least == span.most => write!(f, "{name}={least}"),
            (false, true) => write!(f, "{name}>={least}"),
            (true, _) => write!(f, "{name}<={most}"),
            (false, false) => write!(f, "{name}>={least} and {name}<={most}"),
        }
    }
}

fn show_types(f: &mut Formatter<'_>, types: Types) -> fmt::Result {
    match types.letters() {
        Some(letters) => write!(f, "type={letters}"),
        // Kinds without letters come from what is not asked for.
        None => write!(f, "type!={}", types.complement().letters().unwrap_or_default()),
    }
}

fn show_xattr(f: &mut Formatter<'_>, name: &[u8], test: &XattrTest, negated: bool) -> fmt::Result {
    let name = Quoted(name, "");
    let word = if negated { "not " } else { "" };
    match test {
        XattrTest::Exists => write!(f, "{word}has({name})"),
        XattrTest::Value(pattern) => {
            write!(f, "{name}{}{pattern}", if negated { "!" } else { "" })
        }
        XattrTest::Number(order, Decimal::Whole(number)) => {
            write!(f, "{word}{name}{}{number}", order.symbol())
        }
        XattrTest::Number(order, Decimal::Real(number)) => {
            write!(f, "{word}{name}{}{number:?}", order.symbol())
        }
        XattrTest::Bytes(order, bytes) => {
            write!(f, "{word}{name}{}", order.symbol())?;
            quote(f, bytes)
        }
    }
}

/// Shows a pattern with its operator.
impl Display for Pattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.kind() {
            Kind::Equal => write!(f, "={}", Quoted(self.source(), "")),
            Kind::Glob => write!(f, "~{}", Quoted(self.source(), "*?")),
            Kind::Regex => write!(f, "=~{}", Quoted(self.source(), "*?^$")),
        }
    }
}

/// A time in nanoseconds since 1970, shown in seconds with nine digits more: just this nanosecond.
struct Seconds(i128);

impl Display for Seconds {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let time_ns = self.0.unsigned_abs();
        write!(f, "@{sign}{}.{:09}", time_ns / 1_000_000_000, time_ns % 1_000_000_000)
    }
}

/// A value, in quotes if it has more in it than letters, digits and what follows.
struct Quoted<'a>(&'a [u8], &'static str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let is_plain = |byte: &u8| {
            byte.is_ascii_alphanumeric()
                || b"._-+:%".contains(byte)
                || self.1.as_bytes().contains(byte)
        };
        match std::str::from_utf8(self.0) {
            Ok(text) if !text.is_empty() && self.0.iter().all(is_plain) => f.write_str(text),
            _ => quote(f, self.0),
        }
    }
}

/// Shows a value in quotes. What is not text, and a '/', which no name has, becomes its digits.
fn quote(f: &mut Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    f.write_char('"')?;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '/' => f.write_str("\\x2f")?,
                c if c.is_ascii_control() => write!(f, "\\x{:02x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        for byte in chunk.invalid() {
            write!(f, "\\x{byte:02x}")?;
        }
    }
    f.write_char('"')
}
