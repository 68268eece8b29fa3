//! Names of extended attributes as one text, which is how the index keeps those of an entry: joined
//! by ',', with '\' before each ',' and '\' that is part of a name.
//!
//! The only place that joins them or takes them apart. No name is empty, so an empty text holds
//! none. Names are escaped ([`escape`](crate::escape)) before they are joined, as all texts are.

use std::borrow::Cow;

/// Joins names in their order.
pub fn encode<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for name in names {
        if !text.is_empty() {
            text.push(',');
        }
        for c in name.chars() {
            if matches!(c, ',' | '\\') {
                text.push('\\');
            }
            text.push(c);
        }
    }
    text
}

/// Takes a text that [`encode`] has made apart: yields the names in their order, borrowed where
/// nothing in them is escaped.
pub fn decode(text: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let mut rest = Some(text).filter(|text| !text.is_empty());
    std::iter::from_fn(move || {
        let (name, after) = split_first(rest?);
        rest = after;
        Some(match name.contains('\\') {
            true => Cow::Owned(unquote(name)),
            false => Cow::Borrowed(name),
        })
    })
}

/// Returns whether a text that [`encode`] has made holds a name.
pub fn has(text: &str, name: &str) -> bool {
    decode(text).any(|known| known == name)
}

/// Splits a text at its first bare comma, if there is one.
fn split_first(text: &str) -> (&str, Option<&str>) {
    let mut quoted = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if quoted => quoted = false,
            b'\\' => quoted = true,
            b',' => return (&text[..at], Some(&text[at + 1..])),
            _ => {}
        }
    }
    (text, None)
}

/// Takes the backslashes away that stand before other characters.
fn unquote(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    let mut characters = name.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => plain.extend(characters.next()),
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_joined_by_commas() {
        for (names, text) in [
            (&[][..], ""),
            (&["user.a"], "user.a"),
            (&["user.a", "security.capability"], "user.a,security.capability"),
            (&["user.a,b\\", "user.c"], "user.a\\,b\\\\,user.c"),
            (&["user.ü,"], "user.ü\\,"),
        ] {
            assert_eq!(encode(names.iter().copied()), text);
            assert_eq!(decode(text).collect::<Vec<_>>(), names);
        }
    }

    #[test]
    fn a_part_of_a_name_is_none() {
        let text = encode(["user.system.posix_acl_x", "user.a,security.capability", "user.b"]);
        assert!(has(&text, "user.b") && has(&text, "user.a,security.capability"));
        for name in ["", "user", "user.a", "security.capability", "system.posix_acl_x"] {
            assert!(!has(&text, name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn names_come_back(names in prop::collection::vec("[a,\\\\.ü]{1,6}", 0..6), other: String) {
            let text = encode(names.iter().map(String::as_str));
            prop_assert_eq!(decode(&text).collect::<Vec<_>>(), names.clone());
            prop_assert!(names.iter().all(|name| has(&text, name)));
            prop_assert_eq!(has(&text, &other), names.contains(&other));
        }

        #[test]
        fn any_text_can_be_taken_apart(text: String) {
            let names: Vec<_> = decode(&text).collect();
            let joined = names.iter().map(|name| name.len() + 1).sum::<usize>();
            prop_assert!(joined <= text.len() + 1);
        }
    }
}
