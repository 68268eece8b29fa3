//! Names in the order of versions, as `ls -v` has them: numbers in them count as such, and a suffix
//! such as `.tar.gz` counts only where all else is equal. The rules are those that GNU's manual
//! states under "Version sort ordering".

use std::cmp::Ordering;

/// Compares two names.
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let rank = |name: &[u8]| match name {
        b"" => 0,
        b"." => 1,
        b".." => 2,
        [b'.', ..] => 3,
        _ => 4,
    };
    let ranks = (rank(a), rank(b));
    if ranks.0 != ranks.1 || ranks.0 < 3 {
        return ranks.0.cmp(&ranks.1);
    }
    let (short_a, short_b) = (&a[..without_suffix(a)], &b[..without_suffix(b)]);
    parts(short_a, short_b).then_with(|| parts(a, b))
}

/// Returns how long a name is without its suffix: all `.abc1` at its end, each of a dot, a letter
/// or `~`, and then letters, digits and `~`. That can be all of it.
fn without_suffix(name: &[u8]) -> usize {
    let (mut at, mut end) = (0, 0);
    loop {
        while name.get(at) == Some(&b'.')
            && name.get(at + 1).is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'~')
        {
            at += 2;
            let rest = name[at..].iter();
            at += rest.take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'~').count();
        }
        if at == name.len() {
            return end;
        }
        at += 1;
        end = at;
    }
}

/// Compares, in turns, what is not a number and what is one.
fn parts(mut a: &[u8], mut b: &[u8]) -> Ordering {
    while !a.is_empty() || !b.is_empty() {
        let order = text(&mut a, &mut b).then_with(|| number(&mut a, &mut b));
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// Compares up to the next digits of both and goes there, or to the first difference.
fn text(a: &mut &[u8], b: &mut &[u8]) -> Ordering {
    let is_text = |rest: &[u8]| rest.first().is_some_and(|byte| !byte.is_ascii_digit());
    while is_text(a) || is_text(b) {
        let order = weight(a.first()).cmp(&weight(b.first()));
        if order.is_ne() {
            return order;
        }
        (*a, *b) = (a.get(1..).unwrap_or_default(), b.get(1..).unwrap_or_default());
    }
    Ordering::Equal
}

/// Returns where a byte stands among others: `~` before the end, that before digits, then letters.
fn weight(byte: Option<&u8>) -> i32 {
    match byte {
        Some(b'~') => -2,
        None => -1,
        Some(byte) if byte.is_ascii_digit() => 0,
        Some(byte) if byte.is_ascii_alphabetic() => i32::from(*byte),
        Some(byte) => i32::from(*byte) + 256,
    }
}

/// Compares the numbers at the beginning of both, without leading zeros, and goes behind them.
fn number(a: &mut &[u8], b: &mut &[u8]) -> Ordering {
    let digits = |rest: &mut &[u8]| {
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, after) = rest.split_at(count);
        *rest = after;
        let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
        digits[zeros..].to_vec()
    };
    let (a, b) = (digits(a), digits(b));
    a.len().cmp(&b.len()).then_with(|| a.cmp(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_as_such() {
        let sorted = [
            "",
            ".",
            "..",
            ".a",
            ".a.b",
            ".b~",
            ".b",
            ".5",
            "..5",
            "5",
            "A",
            "a~",
            "a",
            "a.txt~",
            "a.txt",
            "a2",
            "a10",
            "a10.tar",
            "a10x",
            "a-1",
            "a-2.0",
            "a-2.0.1",
            "a-10.0~rc1.tar.gz",
            "a-10.0.tar.gz",
            "b",
        ];
        for (at, a) in sorted.iter().enumerate() {
            for (other, b) in sorted.iter().enumerate() {
                assert_eq!(compare(a.as_bytes(), b.as_bytes()), at.cmp(&other), "{a} {b}");
            }
        }
        assert_eq!(compare(b"a01", b"a1"), Ordering::Equal);
    }
}
