//! Where statements end: at a semicolon that is in no text, name or comment.

/// Returns the number of bytes at the beginning of a text that are not part of a statement: blanks,
/// comments, single semicolons.
pub fn blank(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        at += bytes[at..]
            .iter()
            .take_while(|byte| byte.is_ascii_whitespace() || **byte == b';')
            .count();
        match comment(&bytes[at..]) {
            Some(length) => at += length,
            None => return at,
        }
    }
}

/// Returns where the first statement of a text ends, its semicolon included; `None` if it goes on.
pub fn statement_end(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        at += match rest[0] {
            b';' => return Some(at + 1),
            b'\'' | b'"' | b'`' => {
                let escapes = rest[0] == b'\'' && at > 0 && is_escaped_text(&bytes[..at]);
                quoted(rest, escapes)?
            }
            _ => match comment(rest) {
                // A comment that nothing ends is not over.
                Some(length) if rest[0] == b'/' && !rest[..length].ends_with(b"*/") => return None,
                Some(length) => length,
                None => 1,
            },
        };
    }
    None
}

/// Returns whether a quote behind these bytes begins a text with backslashes, as in `E'it\'s'`.
fn is_escaped_text(before: &[u8]) -> bool {
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    matches!(before, [.., b'e' | b'E']) && !before.iter().rev().nth(1).is_some_and(word)
}

/// Returns the length of a quoted text, with both quotes. A doubled quote ends one text and begins
/// the next.
fn quoted(bytes: &[u8], escapes: bool) -> Option<usize> {
    let mut at = 1;
    loop {
        match *bytes.get(at)? {
            b'\\' if escapes => at += 2,
            byte if byte == bytes[0] => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// Returns the length of a comment at the beginning; to the end of the text if nothing ends it.
fn comment(bytes: &[u8]) -> Option<usize> {
    if bytes.starts_with(b"--") {
        return Some(bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len()));
    }
    if !bytes.starts_with(b"/*") {
        return None;
    }
    let (mut at, mut depth) = (2, 1);
    while depth > 0 && at < bytes.len() {
        let (step, change) = match &bytes[at..] {
            [b'/', b'*', ..] => (2, 1),
            [b'*', b'/', ..] => (2, -1),
            _ => (1, 0),
        };
        at += step;
        depth += change;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut text: &str) -> (Vec<&str>, &str) {
        let mut found = Vec::new();
        loop {
            text = &text[blank(text)..];
            let Some(end) = statement_end(text) else { return (found, text) };
            found.push(&text[..end]);
            text = &text[end..];
        }
    }

    #[test]
    fn semicolons_in_texts_names_and_comments_end_nothing() {
        let whole = [
            "SELECT 1;",
            "SELECT 'a;b''c;' FROM \"x;y\";",
            "SELECT 2 -- no; really\n;",
            "SELECT /* ; /* ; */ ; */ 3;",
            "SELECT E'it\\'s;', 'back\\';",
            "SELECT 'ü;' FROM `a;b`;",
        ];
        let text = format!("-- first; comment\n;; {}\n/* end; */", whole.join("\n"));
        assert_eq!(all(&text), (whole.to_vec(), ""));
    }

    #[test]
    fn an_unfinished_statement_is_left() {
        for open in [
            "SELECT 1",
            "SELECT 'a;",
            "SELECT \"a;",
            "SELECT /* ;",
            "SELECT E'\\';",
            "SELECT 1 -- ;",
        ] {
            assert_eq!(all(&format!("SELECT 0; {open}")), (vec!["SELECT 0;"], open), "{open}");
        }
        assert_eq!(statement_end("SELECT one_e'\\';"), Some(16));
        assert_eq!(blank(" -- only a comment"), 18);
    }
}
