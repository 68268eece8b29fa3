//! Keys, values and records as they are shown, and keys as they are typed. All output is safe for a
//! terminal, and a printed key can be typed again.

use anyhow::{Context, bail, ensure};
use canopy::terminal::stdout_for_json;
use canopy_model::escape;
use canopy_store::{Key, KeyRange, KeyRef, Layout, Op, hash_of};
use canopy_text::safe;
use serde_json::{Map, Value, json};
use std::io::{BufWriter, Write};

/// Returns standard output, for JSON or for lines of text, which are safe already.
pub fn stdout(is_json: bool) -> BufWriter<Box<dyn Write>> {
    match is_json {
        true => stdout_for_json(),
        false => BufWriter::with_capacity(1 << 16, Box::new(std::io::stdout())),
    }
}

/// Returns any bytes as text in which everything is visible.
pub fn text(bytes: &[u8]) -> String {
    safe::report_name(&escape(bytes))
}

/// Returns `DIRECTORY/HASH/NAME`.
pub fn key(key: KeyRef<'_>) -> String {
    format!("{}/{:016x}/{}", key.directory, key.hash, text(key.name))
}

/// Returns where a range begins, and ends if it does; `all` is the range of all keys.
pub fn range(range: &KeyRange) -> String {
    match &range.end {
        _ if *range == KeyRange::all() => "all".into(),
        Some(end) => format!("{} to {}", key(range.start.as_ref()), key(end.as_ref())),
        None => format!("{} on", key(range.start.as_ref())),
    }
}

/// Returns a range as JSON; `to` is null where it has no end.
pub fn range_json(range: &KeyRange) -> Value {
    let end = range.end.as_ref().map(|end| key(end.as_ref()));
    json!({"from": key(range.start.as_ref()), "to": end})
}

/// Returns a layout's columns as `NAME:BYTES`.
pub fn layout(layout: &Layout) -> String {
    let column = |column: &canopy_store::Column| {
        let near = column.near.and_then(|near| layout.columns.get(usize::from(near)));
        let near = near.map(|near| format!("~{}", text(near.name.as_bytes())));
        format!("{}:{}{}", text(column.name.as_bytes()), column.width, near.unwrap_or_default())
    };
    match layout.columns.is_empty() {
        true => "none".into(),
        false => Vec::from_iter(layout.columns.iter().map(column)).join(" "),
    }
}

/// Returns a layout as JSON.
pub fn layout_json(layout: &Layout) -> Value {
    let column = |column: &canopy_store::Column| {
        let name = text(column.name.as_bytes());
        json!({"name": name, "bytes": column.width, "near": column.near})
    };
    layout.columns.iter().map(column).collect()
}

/// Returns the word for an operation.
pub fn op(op: Op) -> &'static str {
    match op {
        Op::Put => "put",
        Op::Merge => "merge",
        Op::Delete => "delete",
    }
}

/// Cuts the columns of a layout off a value; returns them and the rest.
fn columns<'a, 'b>(layout: &'a Layout, value: &'b [u8]) -> (Vec<(&'a str, u64)>, &'b [u8]) {
    let mut numbers = Vec::new();
    // A shorter value has no columns.
    let has_columns = value.len() >= layout.width();
    let mut rest = value;
    for column in layout.columns.iter().filter(|_| has_columns) {
        let Some((bytes, after)) = rest.split_at_checked(column.width.into()) else { break };
        rest = after;
        let number = bytes.iter().rfold(0, |number, byte| number << 8 | u64::from(*byte));
        numbers.push((&*column.name, number));
    }
    (numbers, rest)
}

/// Returns a value as `NAME=NUMBER` for each column, and what follows them in quotes.
pub fn value(layout: &Layout, value: &[u8]) -> String {
    let (columns, rest) = columns(layout, value);
    let named = columns.iter().map(|(name, number)| format!("{}={number}", text(name.as_bytes())));
    let mut parts = Vec::from_iter(named);
    if !rest.is_empty() || parts.is_empty() {
        parts.push(format!("\"{}\"", text(rest)));
    }
    parts.join(" ")
}

/// Returns a value as JSON: its columns, if it has any, and `rest`.
pub fn value_json(layout: &Layout, value: &[u8]) -> Value {
    let (columns, rest) = columns(layout, value);
    let mut object = Map::new();
    if !columns.is_empty() {
        let named = columns.iter().map(|(name, number)| (text(name.as_bytes()), json!(number)));
        object.insert("columns".into(), Value::Object(named.collect()));
    }
    object.insert("rest".into(), text(rest).into());
    Value::Object(object)
}

/// Returns a key's parts as JSON, for an object that says more of it.
pub fn key_json(key: KeyRef<'_>) -> Map<String, Value> {
    let hash = format!("{:016x}", key.hash);
    Map::from_iter([
        ("directory".to_owned(), json!(key.directory)),
        ("hash".to_owned(), json!(hash)),
        ("name".to_owned(), json!(text(key.name))),
    ])
}

/// Returns the key that `typed` means: `DIRECTORY`, `DIRECTORY/HASH` or `DIRECTORY/HASH/NAME`, the
/// first one that begins so. Without digits of the hash it is that of the name.
pub fn parse_key(typed: &str) -> anyhow::Result<Key> {
    let (directory, hash, name) = parts(typed)?;
    let name = name.map(unescape).transpose()?;
    Ok(match (hash.unwrap_or_default(), name) {
        ("", Some(name)) => Key { directory, hash: hash_of(&name), name },
        ("", None) => Key { directory, hash: 0, name: Vec::new() },
        (digits, name) => {
            ensure!(digits.len() == 16, "the key '{typed}' has a hash of other than 16 digits");
            Key { directory, hash: hash_digits(digits)?, name: name.unwrap_or_default() }
        }
    })
}

/// Returns the keys that begin as `typed`: a whole `DIRECTORY`, and digits of the hash, or the hash
/// and what the name begins with.
pub fn parse_prefix(typed: &str) -> anyhow::Result<KeyRange> {
    let (directory, hash, name) = parts(typed)?;
    let digits = hash.unwrap_or_default();
    let key = |hash, name| Key { directory, hash, name };
    let after_directory = KeyRange::directory(directory).end;
    if let Some(name) = name {
        ensure!(digits.len() == 16, "the prefix '{typed}' needs 16 digits of the hash");
        let (hash, name) = (hash_digits(digits)?, unescape(name)?);
        let after_hash = hash.checked_add(1).map(|hash| key(hash, Vec::new())).or(after_directory);
        // The last byte that can grow does, and what is behind it goes.
        let mut beyond = name.clone();
        while beyond.pop_if(|byte| *byte == 255).is_some() {}
        let last = beyond.last_mut().map(|byte| *byte += 1);
        let end = last.map_or(after_hash, |()| Some(key(hash, beyond)));
        return Ok(KeyRange { start: key(hash, name), end });
    }
    if digits.is_empty() {
        return Ok(KeyRange::directory(directory));
    }
    ensure!(digits.len() <= 16, "the prefix '{typed}' has more than 16 digits of a hash");
    let shift = 64 - 4 * digits.len() as u32;
    let number = hash_digits(digits)?;
    let next = number.checked_add(1).filter(|next| next << shift >> shift == *next);
    let end = next.map(|next| key(next << shift, Vec::new())).or(after_directory);
    Ok(KeyRange { start: key(number << shift, Vec::new()), end })
}

fn parts(typed: &str) -> anyhow::Result<(u64, Option<&str>, Option<&str>)> {
    let mut parts = typed.splitn(3, '/');
    let directory = parts.next().unwrap_or_default();
    let number = directory.parse();
    let number = number.with_context(|| format!("'{directory}' is not a number of a directory"))?;
    Ok((number, parts.next(), parts.next()))
}

fn hash_digits(digits: &str) -> anyhow::Result<u64> {
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    ensure!(is_hex, "'{digits}' is not a hexadecimal number");
    u64::from_str_radix(digits, 16).with_context(|| format!("'{digits}' is not a hash"))
}

/// Returns the bytes that [`text`] shows so.
fn unescape(typed: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(typed.len());
    let mut rest = typed;
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        let wrong = || format!("'\\{after}' begins with no escape that is known");
        let letter = after.chars().next().with_context(wrong)?;
        let mut length = letter.len_utf8();
        match letter {
            '\\' => bytes.push(b'\\'),
            'n' => bytes.push(b'\n'),
            't' => bytes.push(b'\t'),
            'x' => {
                let digits = after.get(1..3).with_context(wrong)?;
                bytes.push(u8::from_str_radix(digits, 16).with_context(wrong)?);
                length = 3;
            }
            'u' => {
                let digits = after.strip_prefix("u{").and_then(|rest| rest.split_once('}'));
                let digits = digits.with_context(wrong)?.0;
                let number = u32::from_str_radix(digits, 16).with_context(wrong)?;
                let shown = char::from_u32(number).with_context(wrong)?;
                bytes.extend(shown.encode_utf8(&mut [0; 4]).bytes());
                length = digits.len() + 3;
            }
            _ => bail!(wrong()),
        }
        rest = &after[length..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_keys_can_be_typed() {
        let names: [&[u8]; 6] = [
            b"results.csv",
            b"a/b c\\n",
            b"\x1b[31m\n\t\0\x7f",
            b"\xff\xfe\x80",
            "ü\u{9b}\u{202e}\u{200b}\u{10ff9b}".as_bytes(),
            b"",
        ];
        for name in names {
            let shown = Key { directory: 7, hash: 3, name: name.to_vec() };
            let typed = key(shown.as_ref());
            assert!(!typed.contains(char::is_control), "{typed:?}");
            assert_eq!(parse_key(&typed).unwrap(), shown, "{typed}");
        }
        assert_eq!(parse_key("7//a").unwrap(), Key::named(7, b"a"));
        for wrong in
            ["", "x", "7/12", "7/zz//", "7//\\q", "7//\\x4", "7//\\u{110000}", "7//\\", "-1"]
        {
            assert!(parse_key(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_prefix_has_the_keys_that_begin_so() {
        let key = |hash, name: &[u8]| Key { directory: 7, hash, name: name.to_vec() };
        for (typed, inside, outside) in [
            ("7", key(u64::MAX, b"z"), Key { directory: 8, ..key(0, b"") }),
            ("7/", key(0, b""), Key { directory: 6, ..key(u64::MAX, b"z") }),
            ("7/a", key(0xafff_ffff_ffff_ffff, b"z"), key(0xb000_0000_0000_0000, b"")),
            ("7/ff", key(u64::MAX, b"z"), Key { directory: 8, ..key(0, b"") }),
            ("7/0000000000000003", key(3, b"z"), key(4, b"")),
            ("7/ffffffffffffffff", key(u64::MAX, b"z"), key(u64::MAX - 1, b"z")),
            ("7/0000000000000003/ab", key(3, b"ab\xff\xff"), key(3, b"ac")),
            ("7/0000000000000003/a\\xff", key(3, b"a\xff\xff"), key(3, b"b")),
            ("7/0000000000000003/\\xff", key(3, b"\xff\xff"), key(4, b"")),
            ("7/ffffffffffffffff/\\xff", key(u64::MAX, b"\xff\xff"), key(u64::MAX, b"\xfe")),
        ] {
            let range = parse_prefix(typed).unwrap();
            assert!(
                range.contains(inside.as_ref()) && !range.contains(outside.as_ref()),
                "{typed}"
            );
        }
        let last = parse_prefix("18446744073709551615/f").unwrap();
        assert_eq!(last.end, None);
        assert!(parse_prefix("7//a").is_err() && parse_prefix("7/00000000000000000").is_err());
    }
}
