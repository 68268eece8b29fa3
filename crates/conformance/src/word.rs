//! How bytes are written in scripts and answers: as they are, except for `\xNN` and, for many of
//! the same, `<a*255>`. Nothing at all is `""`.

/// Runs of one byte that are at least this long are written as such.
const RUN: usize = 16;

/// Returns the bytes that a word stands for.
pub fn decode(word: &str) -> Option<Vec<u8>> {
    if word == "\"\"" {
        return Some(Vec::new());
    }
    let mut bytes = Vec::new();
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        match first {
            '\\' => {
                let number = rest.strip_prefix('x')?.get(..2)?;
                bytes.push(u8::from_str_radix(number, 16).ok()?);
                rest = &rest[3..];
            }
            '<' => {
                let (run, after) = rest.split_once('>')?;
                let (pattern, times) = run.rsplit_once('*')?;
                bytes.extend(decode(pattern)?.repeat(times.parse().ok()?));
                rest = after;
            }
            _ => bytes.extend(first.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Some(bytes)
}

/// Writes bytes as one word.
pub fn encode(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "\"\"".to_owned();
    }
    let mut word = String::new();
    for run in bytes.chunk_by(|left, right| left == right) {
        let one = match run[0] {
            byte @ b'!'..=b'~' if !b"\\<>\"|$*".contains(&byte) => char::from(byte).to_string(),
            byte => format!("\\x{byte:02x}"),
        };
        match run.len() {
            RUN.. => word.push_str(&format!("<{one}*{}>", run.len())),
            times => word.push_str(&one.repeat(times)),
        }
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_their_word() {
        let every = Vec::from_iter(0..=255);
        for bytes in [&b""[..], b"plain", b"a b", &[b'a'; 255], &[0; 4096], &every] {
            assert_eq!(decode(&encode(bytes)).as_deref(), Some(bytes));
        }
        assert_eq!(decode("<ab/*3>x").as_deref(), Some(&b"ab/ab/ab/x"[..]));
        assert_eq!(decode("\\x4"), None);
    }
}
