//! Sizes as people read them, and as `--block-size` asks for them: what GNU's tools do in
//! `human.c`.

use crate::error::{Error, Result};
use std::ffi::OsString;

/// Units of 1024 bytes, as `-k` has them.
const KIBIBYTE: u64 = 1024;

const UNITS: [char; 9] = ['0', 'K', 'M', 'G', 'T', 'P', 'E', 'Z', 'Y'];

/// How numbers of bytes or of units are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeForm {
    /// Whether each number has the unit that suits it.
    scaled: bool,
    /// Whether units are powers of 1024 instead of 1000.
    binary: bool,
    /// Whether the unit is printed.
    unit: bool,
    /// Whether a printed unit ends in `B`.
    byte: bool,
    /// Bytes of the unit in which numbers are shown, if they are not scaled.
    block_bytes: u64,
}

impl Default for SizeForm {
    /// Returns units of 1024 bytes.
    fn default() -> Self {
        SizeForm::KIBIBYTES
    }
}

impl SizeForm {
    /// Shows units of so many bytes, rounded up, without anything behind the number.
    pub const fn blocks(block_bytes: u64) -> Self {
        SizeForm { scaled: false, binary: false, unit: false, byte: false, block_bytes }
    }

    /// Units of 1024 bytes.
    pub const KIBIBYTES: SizeForm = SizeForm::blocks(KIBIBYTE);

    /// Bytes.
    pub const BYTES: SizeForm = SizeForm::blocks(1);

    /// With units of powers of 1024: `4.0K`.
    pub const HUMAN: SizeForm =
        SizeForm { scaled: true, binary: true, unit: true, byte: false, block_bytes: 1 };

    /// With units of powers of 1000: `4.1k`.
    pub const SI: SizeForm = SizeForm { binary: false, ..SizeForm::HUMAN };

    /// Returns the form that an argument of `--block-size` asks for.
    pub fn parse(text: &str) -> Result<Self> {
        // A quote asks for groups of digits, of which the C locale has none.
        let text = text.strip_prefix('\'').unwrap_or(text);
        let names = [("human-readable", SizeForm::HUMAN), ("si", SizeForm::SI)];
        if let Some((_, form)) =
            names.iter().find(|(name, _)| !text.is_empty() && name.starts_with(text))
        {
            return Ok(*form);
        }
        let (radix, digits, _) = digits_of(text);
        let has_number = !digits.is_empty() || radix != 10;
        if has_number && digits.bytes().all(|digit| digit == b'0') {
            return Err(Error::BlockSize(text.to_owned()));
        }
        let block_bytes = parse_size(text)?;
        let form = SizeForm::blocks(block_bytes);
        if !digits.is_empty() {
            return Ok(form);
        }
        let byte = text.ends_with('B');
        Ok(SizeForm { unit: true, byte, binary: !byte || text.ends_with("iB"), ..form })
    }

    /// Returns the form that the environment asks for: that of the first of these variables that is
    /// set, else
    /// `POSIXLY_CORRECT`, else units of 1024 bytes. Variables that make no sense count as not
    /// set.
    pub fn from_environment(own: &str) -> Self {
        let set = |name: &&str| std::env::var_os(name).is_some();
        let value =
            [own, "BLOCK_SIZE", "BLOCKSIZE"].into_iter().find(set).and_then(std::env::var_os);
        let form = value.and_then(|value: OsString| SizeForm::parse(value.to_str()?).ok());
        let default =
            if set(&"POSIXLY_CORRECT") { SizeForm::blocks(512) } else { SizeForm::KIBIBYTES };
        form.unwrap_or(default)
    }

    /// Returns the same with another unit.
    pub fn with_block_bytes(self, block_bytes: u64) -> Self {
        SizeForm { block_bytes, ..self }
    }

    /// Shows so many bytes, or counts if the unit is one byte; what is left over is rounded up.
    pub fn show(&self, amount: impl Into<i128>) -> String {
        self.show_wide(amount.into())
    }

    fn show_wide(&self, amount: i128) -> String {
        let sign = if amount < 0 { "-" } else { "" };
        let amount = amount.unsigned_abs();
        let block = u128::from(self.block_bytes);
        if !self.scaled {
            return format!(
                "{sign}{}{}",
                amount.div_ceil(block),
                self.suffix(self.block_exponent())
            );
        }
        let base = if self.binary { 1024 } else { 1000 };
        let (mut exponent, mut unit) = (0, 1_u128);
        while amount / unit >= base && exponent < 8 {
            unit *= base;
            exponent += 1;
        }
        let tenths = amount.saturating_mul(10).div_ceil(unit);
        if exponent > 0 && tenths < 100 {
            return format!("{sign}{}.{}{}", tenths / 10, tenths % 10, self.suffix(exponent));
        }
        match amount.div_ceil(unit) {
            whole if whole == base && exponent < 8 => {
                format!("{sign}1.0{}", self.suffix(exponent + 1))
            }
            whole => format!("{sign}{whole}{}", self.suffix(exponent)),
        }
    }

    /// Returns the smallest power of the base that is at least the unit.
    fn block_exponent(&self) -> usize {
        let base: u128 = if self.binary { 1024 } else { 1000 };
        (0..8).find(|&exponent| base.pow(exponent) >= u128::from(self.block_bytes)).unwrap_or(8)
            as usize
    }

    fn suffix(&self, exponent: usize) -> String {
        let mut suffix = String::new();
        if !self.unit {
            return suffix;
        }
        if exponent > 0 {
            suffix.push(if !self.binary && exponent == 1 { 'k' } else { UNITS[exponent] });
        }
        if self.byte {
            suffix.push_str(if self.binary && exponent > 0 { "iB" } else { "B" });
        }
        suffix
    }
}

/// Reads a number with a unit behind it, as `--block-size` and `--threshold` take it: `12`, `0x10`,
/// `4K`, `KB`, `1MiB` and the like; units of 1024, or of 1000 with a `B` behind.
pub fn parse_size(text: &str) -> Result<u64> {
    let (radix, digits, suffix) = digits_of(text);
    let mut letters = suffix.chars();
    let unit = letters.next().map(|unit| unit.to_ascii_uppercase());
    let exponent = UNITS.iter().skip(1).position(|&known| Some(known) == unit);
    let number = match digits {
        "" if radix == 10 && exponent.is_some() => Some(1),
        "" if radix == 10 => return Err(Error::Size(text.to_owned())),
        // Nothing but `0x`: what follows the zero is not a unit.
        "" => return Err(Error::SizeSuffix(text.to_owned())),
        digits => u64::from_str_radix(digits, radix).ok(),
    };
    let factor = match (exponent, letters.as_str()) {
        (None, "") if unit.is_none() => Some(1),
        (Some(exponent), "" | "iB") => 1024_u64.checked_pow(exponent as u32 + 1),
        (Some(exponent), "B" | "D") => 1000_u64.checked_pow(exponent as u32 + 1),
        _ => return Err(Error::SizeSuffix(text.to_owned())),
    };
    let value = number.zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    value.ok_or_else(|| Error::LargeSize(text.to_owned()))
}

/// Reads a whole number, such as `80`, `0x50` or `0120`.
pub fn whole_number(text: &str) -> Option<usize> {
    let (radix, digits, rest) = digits_of(text);
    usize::from_str_radix(digits, radix).ok().filter(|_| rest.is_empty())
}

/// Reads how many columns a line has, as ls(1) does: 0, and what is too large, is not a limit.
pub fn line_width(text: &str) -> Option<usize> {
    let (radix, digits, rest) = digits_of(text);
    let is_number = rest.is_empty() && !digits.is_empty();
    let columns = usize::from_str_radix(digits, radix).ok().filter(|&count| count <= WIDEST);
    is_number.then(|| columns.unwrap_or(0))
}

/// The widest line that has a limit.
const WIDEST: usize = isize::MAX as usize;

/// Returns the base of a number, its digits and the rest, as strtol(3) divides them.
fn digits_of(text: &str) -> (u32, &str, &str) {
    let text = text.trim_ascii_start();
    let is_digit = |text: &&str| text.starts_with(|first: char| first.is_ascii_digit());
    let text = text.strip_prefix('+').filter(is_digit).unwrap_or(text);
    let (radix, digits_at) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, 2),
        [b'0', b'0'..=b'9', ..] => (8, 0),
        _ => (10, 0),
    };
    let rest = &text[digits_at..];
    let (digits, rest) =
        rest.split_at(rest.find(|c: char| !c.is_digit(radix)).unwrap_or(rest.len()));
    (radix, digits, rest)
}

/// Shows bytes as du(1) and ls(1) do with `-h`: `4.0K`, `12M`, rounded up.
pub fn human_size(bytes: impl Into<i128>) -> String {
    SizeForm::HUMAN.show(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_up_as_du_does() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_240, "10K"),
            (10_138, "10K"),
            (1_048_575, "1.0M"),
            (-2048, "-2.0K"),
            (i64::MAX, "8.0E"),
        ] {
            assert_eq!(human_size(bytes), text, "{bytes}");
        }
        assert_eq!(
            [999, 1000, 1001, 999_999].map(|n| SizeForm::SI.show(n)),
            ["999", "1.0k", "1.1k", "1.0M"]
        );
    }

    #[test]
    fn block_sizes_are_read_as_gnu_reads_them() {
        let shown = |form: &str, bytes| SizeForm::parse(form).map(|form| form.show(bytes));
        for (form, expected) in [
            ("1K", "3"),
            ("K", "3K"),
            ("kB", "3kB"),
            ("KiB", "3KiB"),
            ("M", "1M"),
            ("0x200", "5"),
            ("010", "257"),
            ("'512", "5"),
            ("si", "2.1k"),
            ("hum", "2.1K"),
        ] {
            assert_eq!(shown(form, 2050).as_deref(), Ok(expected), "{form}");
        }
        for form in ["", "0", "-1", "K1", "Q", "1Kb", "1Z", "08", "0x", "99999999999999999999"] {
            assert!(shown(form, 1).is_err(), "{form}");
        }
    }

    #[test]
    fn a_zero_in_front_makes_a_number_octal() {
        for (text, value) in [("0", 0), ("00", 0), ("80", 80), ("0120", 80), ("0x50", 80)] {
            assert_eq!(
                (whole_number(text), line_width(text)),
                (Some(value), Some(value)),
                "{text}"
            );
        }
        for text in ["", "08", "018", "0x", "8K"] {
            assert_eq!((whole_number(text), line_width(text)), (None, None), "{text}");
        }
        assert_eq!(parse_size("07K"), Ok(7 * 1024));
        assert!(parse_size("08").is_err() && parse_size("09K").is_err());
    }
}
