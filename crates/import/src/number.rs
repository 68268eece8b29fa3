//! Numbers as text, read without allocation.

use crate::fault::{Checked, Fault};

/// Nanoseconds in a second.
const SECOND_NS: i64 = 1_000_000_000;

/// Reads a decimal number without a sign.
pub(crate) fn unsigned(text: &[u8]) -> Checked<u64> {
    let invalid = || Fault::value(text, "a number");
    if text.is_empty() || text.len() > 20 {
        return Err(invalid());
    }
    let mut number: u64 = 0;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(invalid());
        }
        number =
            number.checked_mul(10).and_then(|n| n.checked_add(digit.into())).ok_or_else(invalid)?;
    }
    Ok(number)
}

/// Reads a decimal number that may have a sign.
pub(crate) fn signed(text: &[u8]) -> Checked<i64> {
    let out_of_range = |_| Fault::value(text, "a number of 64 bits");
    match text.strip_prefix(b"-") {
        Some(digits) => {
            let number = unsigned(digits)?;
            0_i64.checked_sub_unsigned(number).ok_or(()).map_err(out_of_range)
        }
        None => i64::try_from(unsigned(text)?).map_err(|_| ()).map_err(out_of_range),
    }
}

/// Reads a number of at most 32 bits.
pub(crate) fn unsigned_32(text: &[u8]) -> Checked<u32> {
    let number = unsigned(text)?;
    u32::try_from(number).map_err(|_| Fault::Range { got: number, expected: "a number of 32 bits" })
}

/// Reads a size or a count that must fit an `i64`.
pub(crate) fn size(text: &[u8]) -> Checked<i64> {
    let number = unsigned(text)?;
    i64::try_from(number).map_err(|_| Fault::Range { got: number, expected: "less than 2^63" })
}

/// Reads whole seconds since 1970, as nanoseconds; what does not fit is clamped.
pub(crate) fn seconds(text: &[u8]) -> Checked<i64> {
    Ok(signed(text)?.saturating_mul(SECOND_NS))
}

/// Reads four hexadecimal digits.
pub(crate) fn hex_4(text: &[u8]) -> Checked<usize> {
    let invalid = || Fault::value(text, "4 hexadecimal digits");
    let mut bytes = [0; 2];
    hex::decode_to_slice(text, &mut bytes).map_err(|_| invalid())?;
    Ok(u16::from_be_bytes(bytes).into())
}

/// Reads a byte from two hexadecimal digits.
pub(crate) fn hex_2(digits: [u8; 2]) -> Checked<u8> {
    let invalid = || Fault::value(&digits, "2 hexadecimal digits");
    let mut byte = [0];
    hex::decode_to_slice(digits, &mut byte).map_err(|_| invalid())?;
    Ok(byte[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_errors() {
        assert_eq!(unsigned(b"18446744073709551615"), Ok(u64::MAX));
        assert!(unsigned(b"18446744073709551616").is_err());
        assert!(unsigned(b"").is_err() && unsigned(b"+1").is_err() && unsigned(b"1 ").is_err());
        assert_eq!(signed(b"-9223372036854775808"), Ok(i64::MIN));
        assert!(signed(b"9223372036854775808").is_err() && signed(b"--1").is_err());
        assert!(unsigned_32(b"4294967296").is_err() && size(b"-1").is_err());
        assert_eq!(seconds(b"-1"), Ok(-SECOND_NS));
        assert_eq!(seconds(b"9223372036854775807"), Ok(i64::MAX));
        assert_eq!(hex_4(b"00fF"), Ok(255));
        assert!(hex_4(b"00g0").is_err() && hex_4(b" 0f0").is_err());
    }
}
