//! Queries as messages.

use super::Moment;
use crate::records::keys::FileId;
use canopy_model::Credentials;
use canopy_query::Expression;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The most files that a user's [`Operation::Search`](super::Operation::Search) returns.
pub const FOUND_MAX: u64 = 4096;

/// A search of a user below a directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Query<'a> {
    /// The tree that is searched.
    pub at: Moment,
    /// The directory.
    pub base: FileId,
    /// The condition that files meet. In messages it is text that means the same at any time.
    #[serde(with = "text")]
    pub expression: Cow<'a, Expression>,
    /// The user: only what this one could see by listing directories from the base on is found.
    pub who: Cow<'a, Credentials>,
}

/// How a query is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Where it looks for files, in words.
    pub looks_in: String,
    /// How many files it looks up by indexes; none if it looks at every name.
    pub candidates: Option<u64>,
}

impl<'a> Query<'a> {
    /// Returns the query of a user below a directory.
    pub fn new(at: Moment, base: FileId, expression: &'a Expression, who: &'a Credentials) -> Self {
        Query { at, base, expression: Cow::Borrowed(expression), who: Cow::Borrowed(who) }
    }
}

/// Expressions as texts, one for each test that has to pass: a single one may be as long as a
/// component of a path, and all together longer.
mod text {
    use super::{Cow, Expression};
    use canopy_query::{Component, Context, Counts, parse_inner};
    use jiff::tz::TimeZone;
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(
        expression: &Expression,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let parts = match expression {
            Expression::And(parts) => &parts[..],
            one => std::slice::from_ref(one),
        };
        serializer.collect_seq(parts.iter().map(Expression::to_string))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Cow<'static, Expression>, D::Error> {
        let nobody = |_: &str| None;
        let context = Context { now_ns: 0, zone: TimeZone::UTC, user: &nobody, group: &nobody };
        let texts = Vec::<String>::deserialize(deserializer)?;
        // Patterns take memory, and a message has room for many.
        let mut counts = Counts::default();
        let mut parse = |text: &String| parse_inner(text.as_bytes(), &context, &mut counts);
        let parts = texts.iter().map(|text| match parse(text) {
            Ok(Component::Search(expression)) => Ok(expression),
            Ok(_) => Err(D::Error::custom("a component that is not a test")),
            Err(error) => Err(D::Error::custom(error)),
        });
        Ok(Cow::Owned(Expression::all(parts.collect::<Result<Vec<_>, _>>()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with texts in place of an expression.
    fn message(texts: &[String]) -> Vec<u8> {
        let parts = (Moment::Now, FileId(1), texts, Credentials::new(0, []));
        postcard::to_extend(&parts, Vec::new()).unwrap()
    }

    #[test]
    fn patterns_of_all_texts_of_a_message_are_limited() {
        let text = r#"name=~"abc.{1,30}" or name=~"abd.{1,30}""#.to_owned();
        let texts = vec![text; 400];
        let read = |bytes: &[u8]| postcard::from_bytes::<Query<'_>>(bytes).map(drop);
        assert!(read(&message(&texts[..16])).is_ok());
        for count in [17, 400] {
            assert!(read(&message(&texts[..count])).is_err(), "{count}");
        }
        let test = "size>1".to_owned();
        assert!(read(&message(&vec![test.clone(); 1024])).is_ok());
        assert!(read(&message(&vec![test; 1025])).is_err());
    }
}
