//! Names and paths: how bytes are kept as UTF-8, and the one order in which paths are sorted.
//!
//! A name on Linux is any bytes but NUL and '/'. Columns of strings are UTF-8, so a name is kept
//! *escaped*: as it is where it is valid UTF-8 without a character of the escape range, and
//! otherwise with each offending byte `b` as the character U+10FF00 + b. The range U+10FF80 to
//! U+10FFFF lies at the end of a private use plane; where a name really contains one of its
//! characters, its four bytes are escaped, so every byte string has exactly one escaped form.
//!
//! Paths are compared component by component (*path order*), so that a directory's subtree is one
//! contiguous range of a sorted sequence. Order is that of the escaped form.

use std::borrow::Cow;
use std::cmp::Ordering;

const ESCAPE_BASE: u32 = 0x10_FF00;
const ESCAPE_FIRST: char = '\u{10FF80}';

/// Escapes a name or path: valid UTF-8 from any bytes.
pub fn escape(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !holds_escapes(text) => Cow::Borrowed(text),
        _ => Cow::Owned(escape_slow(bytes)),
    }
}

fn holds_escapes(text: &str) -> bool {
    // Every character of the escape range starts with the bytes F4 8F; most names hold no such byte
    // at all.
    text.as_bytes().contains(&0xF4) && text.chars().any(|c| c >= ESCAPE_FIRST)
}

fn escape_slow(bytes: &[u8]) -> String {
    let escaped = |byte: u8| {
        char::from_u32(ESCAPE_BASE + u32::from(byte))
            .expect("a byte above 0x7f maps into the plane")
    };
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c >= ESCAPE_FIRST {
                let mut buffer = [0; 4];
                text.extend(c.encode_utf8(&mut buffer).bytes().map(escaped));
            } else {
                text.push(c);
            }
        }
        text.extend(chunk.invalid().iter().copied().map(escaped));
    }
    text
}

/// Returns the bytes that an escaped name or path stands for.
pub fn unescape(text: &str) -> Cow<'_, [u8]> {
    if !holds_escapes(text) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        if c >= ESCAPE_FIRST {
            bytes.push((u32::from(c) - ESCAPE_BASE) as u8);
        } else {
            bytes.extend(c.encode_utf8(&mut [0; 4]).bytes());
        }
    }
    Cow::Owned(bytes)
}

/// Compares two escaped paths in path order: component by component.
pub fn compare_paths(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    match a.iter().zip(b).position(|(x, y)| x != y) {
        None => a.len().cmp(&b.len()),
        Some(at) => {
            let rank = |byte: u8| if byte == b'/' { 0 } else { byte };
            rank(a[at]).cmp(&rank(b[at]))
        }
    }
}

/// Returns whether `path` is `directory` or lies below it. Both are relative to the same root,
/// whose path is empty.
pub fn is_below(path: &str, directory: &str) -> bool {
    directory.is_empty()
        || path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the path of `name` in `directory`; a directory with an empty path is the root.
pub fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

/// Returns the absolute path of `path`, which is below a root whose absolute path is `root`.
pub fn join_absolute(root: &str, path: &str) -> String {
    match (root, path) {
        ("/", path) => format!("/{path}"),
        (root, "") => root.to_owned(),
        (root, path) => format!("{root}/{path}"),
    }
}

/// Returns the path of the directory that holds `path`, or `None` for the root.
pub fn parent(path: &str) -> Option<&str> {
    if path.is_empty() {
        return None;
    }
    Some(path.rsplit_once('/').map_or("", |(parent, _)| parent))
}

/// Returns the last component of a path.
pub fn base_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_survive_escaping(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let escaped = escape(&bytes).into_owned();
            prop_assert!(unescape(&escaped) == bytes);
        }

        #[test]
        fn any_text_survives_escaping(text in ".{0,12}", c in prop::char::range('\u{10FF00}', '\u{10FFFF}')) {
            let text = format!("{text}{c}");
            let escaped = escape(text.as_bytes()).into_owned();
            prop_assert!(unescape(&escaped) == text.as_bytes());
        }

        #[test]
        fn path_order_is_component_order(a in "[ab./-]{0,8}", b in "[ab./-]{0,8}") {
            let parts = |path: &str| path.split('/').map(str::to_owned).collect::<Vec<_>>();
            if !a.ends_with('/') && !b.ends_with('/') && !a.is_empty() && !b.is_empty() {
                prop_assert_eq!(compare_paths(&a, &b), parts(&a).cmp(&parts(&b)));
            }
        }
    }

    #[test]
    fn a_subtree_is_contiguous() {
        let mut paths = ["a-b", "a/z", "a", "a/b", "a.c", "b", "", "a/b/c"];
        paths.sort_by(|a, b| compare_paths(a, b));
        assert_eq!(paths, ["", "a", "a/b", "a/b/c", "a/z", "a-b", "a.c", "b"]);
        assert!(is_below("a/b", "a") && is_below("a", "a") && !is_below("a-b", "a"));
        assert_eq!(parent("a/b"), Some("a"));
        assert_eq!(parent("a"), Some(""));
        assert_eq!(parent(""), None);
    }
}
