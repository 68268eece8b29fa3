//! The condition that an entry meets if a search does anything with it, in terms that indexes of
//! attributes understand. It is never false of an entry that is acted on; of others it may be true.

use crate::find::actions::Action;
use crate::find::language::{AskedXattr, Expr, Find, Test, XattrTest};
use canopy_query::{
    Expression, Field, Kind, Pattern, Span, Test as QueryTest, TextField, Types,
    XattrTest as QueryXattrTest,
};
use canopy_text::Glob;

/// Returns the condition that an entry meets if an action is reached.
pub(super) fn for_acting(find: &Find) -> Expression {
    Conditions::of(&find.expr, &find.actions).acts
}

/// Conditions that an entry meets if three things happen to it.
struct Conditions {
    /// The expression is true.
    passes: Expression,
    /// It is false.
    fails: Expression,
    /// An action in it is reached.
    acts: Expression,
}

impl Conditions {
    fn of(expr: &Expr, actions: &[Action]) -> Self {
        let (always, never) = (Expression::always(true), Expression::always(false));
        let of = |expr: &Expr| Self::of(expr, actions);
        match expr {
            Expr::And(first, second) => of(first).and(of(second)),
            // It is false where both are.
            Expr::Or(first, second) => of(first).not().and(of(second).not()).not(),
            Expr::Comma(first, second) => {
                let (first, second) = (of(first), of(second));
                Conditions { acts: Expression::any([first.acts, second.acts]), ..second }
            }
            Expr::Not(inner) => of(inner).not(),
            Expr::Test(test) => {
                Conditions { passes: passes(test), fails: fails(test), acts: never }
            }
            Expr::Action(action) => {
                let fails = if actions[*action].decides() { always.clone() } else { never };
                Conditions { passes: always.clone(), fails, acts: always }
            }
            Expr::Prune => Conditions { passes: always, fails: never.clone(), acts: never },
        }
    }

    fn and(self, second: Conditions) -> Self {
        let after = |second| Expression::all([self.passes.clone(), second]);
        Conditions {
            fails: Expression::any([self.fails, after(second.fails)]),
            acts: Expression::any([self.acts, after(second.acts)]),
            passes: after(second.passes),
        }
    }

    fn not(self) -> Self {
        Conditions { passes: self.fails, fails: self.passes, acts: self.acts }
    }
}

/// Returns a condition of all entries that pass a test.
fn passes(test: &Test) -> Expression {
    match test {
        Test::Always(outcome) => Expression::always(*outcome),
        Test::Name(glob) => name(glob),
        Test::Condition(test) => (*test).into(),
        Test::Empty => Expression::any([
            Expression::span(Field::Size, Span { least: 0, most: 0 }),
            Expression::types(Types::of('d').unwrap_or_default()),
        ]),
        Test::SameFile(file) => file.inode_test().into(),
        Test::Target(_) => Expression::types(Types::of('l').unwrap_or_default()),
        // Names are escaped in patterns; what is not plain is left to the test itself.
        Test::Xattr(XattrTest { asked: AskedXattr::Named(Glob::Literal(name), ..), .. })
            if name.is_ascii() =>
        {
            let name = name.clone().into_bytes();
            Expression::Test(QueryTest::Xattr(name, QueryXattrTest::Exists))
        }
        _ => Expression::always(true),
    }
}

/// Returns a condition of all entries that fail a test.
fn fails(test: &Test) -> Expression {
    match test {
        Test::Always(outcome) => Expression::always(!outcome),
        Test::Condition(test) => Expression::from(*test).negated(),
        _ => Expression::always(true),
    }
}

/// Returns a condition of all names that match a pattern. Names are escaped in patterns: only what
/// is plain in both is used.
fn name(glob: &Glob) -> Expression {
    let is_plain = |text: &str| text.is_ascii() && !text.is_empty();
    match glob {
        Glob::Literal(text) if is_plain(text) => equal(TextField::Name, text),
        Glob::Prefix(text) if is_plain(text) => begins(text),
        Glob::Suffix(text) if is_plain(text) => extension(text, false),
        Glob::Parts(begin, _, end) if is_plain(begin) => {
            Expression::all([begins(begin), extension(end, true)])
        }
        Glob::Parts(_, _, end) => extension(end, false),
        _ => Expression::always(true),
    }
}

/// Returns the condition that a text is this.
fn equal(field: TextField, text: &str) -> Expression {
    matches(field, Pattern::new(Kind::Equal, text.as_bytes(), false))
}

/// Returns the condition that the name begins so.
fn begins(text: &str) -> Expression {
    matches(TextField::Name, Pattern::beginning_with(text.as_bytes()))
}

fn matches(field: TextField, pattern: canopy_text::Result<Pattern>) -> Expression {
    match pattern {
        Ok(pattern) => Expression::Test(QueryTest::Text(field, pattern)),
        Err(_) => Expression::always(true),
    }
}

/// Returns a condition of names that end so, with something in front if `is_longer`.
fn extension(end: &str, is_longer: bool) -> Expression {
    let Some(dot) = end.rfind('.').filter(|_| end.is_ascii()) else {
        return Expression::always(true);
    };
    let text = &end[dot + 1..];
    if text.is_empty() {
        return Expression::always(true);
    }
    let extension = equal(TextField::Extension, text);
    match is_longer || dot > 0 {
        true => extension,
        // The name may be no more than that, which is not an extension.
        false => Expression::any([extension, equal(TextField::Name, end)]),
    }
}

#[cfg(test)]
#[path = "../../../../query/tests/table/mod.rs"]
mod table;

#[cfg(test)]
mod tests {
    use super::table::{CASES, ENTRIES};
    use super::*;
    use crate::find::parse_for_records;

    fn needed(words: &[&str]) -> Expression {
        let words = [&["/", "("], words, &[")", "-print"]].concat();
        let words: Vec<_> = words.into_iter().map(Into::into).collect();
        let find = parse_for_records(&words, 0).unwrap_or_else(|error| panic!("{error}"));
        for_acting(&find)
    }

    #[test]
    fn needed_facts_agree_with_the_table() {
        for case in CASES {
            let (needed, is_exact) = (needed(case.find), !case.find.contains(&"-name"));
            for entry in &ENTRIES {
                let (needs, finds) = (needed.matches(entry), case.finds(entry));
                assert!(needs || !finds, "{:?} {entry:?}: {needed}", case.find);
                assert!(finds || !needs || !is_exact, "{:?} {entry:?}: {needed}", case.find);
            }
        }
    }

    #[test]
    fn beginnings_and_ends_of_names_are_needed() {
        for (pattern, expected) in [("a.t*", &["a.txt"][..]), ("*.h5", &["b.h5"]), ("c", &["c"])] {
            let needed = needed(&["-name", pattern]);
            let found = ENTRIES.iter().filter(|entry| needed.matches(*entry));
            let names = found.map(|entry| String::from_utf8_lossy(entry.name));
            assert_eq!(Vec::from_iter(names), expected, "{pattern}");
        }
    }
}
