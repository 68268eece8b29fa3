//! Limits as text: amounts of memory, times and ages.

use std::str::FromStr;
use std::time::Duration;

/// How much memory may be used, in bytes; `None` for any amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit(pub Option<usize>);

/// How long something may take; `None` for any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimit(pub Option<Duration>);

/// Reads an amount of memory.
///
/// # Errors
///
/// If the text is not a size, or less than the least.
pub fn memory_size(text: &str) -> Result<usize, String> {
    let invalid = || "give a size such as 512M or 2G, of at least 16M".to_owned();
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number: usize = digits.parse().map_err(|_| invalid())?;
    number.checked_mul(1 << shift).filter(|&bytes| bytes >= 16 << 20).ok_or_else(invalid)
}

impl FromStr for MemoryLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(MemoryLimit(None)),
            size => memory_size(size).map(|bytes| MemoryLimit(Some(bytes))),
        }
    }
}

impl FromStr for TimeLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(TimeLimit(None));
        }
        let invalid = || "give a time such as 90s, 15m or 2h, or none".to_owned();
        let (digits, unit_s) = match text.char_indices().last() {
            Some((at, 's')) => (&text[..at], 1),
            Some((at, 'm')) => (&text[..at], 60),
            Some((at, 'h')) => (&text[..at], 3600),
            _ => (text, 1),
        };
        let number: u32 = digits.parse().map_err(|_| invalid())?;
        match number.checked_mul(unit_s) {
            None | Some(0) => Err(invalid()),
            Some(seconds) => Ok(TimeLimit(Some(Duration::from_secs(seconds.into())))),
        }
    }
}

/// Returns half of the machine's memory, in bytes; `None` if it is unknown.
pub fn half_of_memory() -> Option<usize> {
    let about = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = about.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total_kb: usize = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    total_kb.checked_mul(512)
}

/// An age from which on answers are marked as old, in nanoseconds; `None` for no age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleAfter(pub Option<i64>);

impl Default for StaleAfter {
    fn default() -> Self {
        StaleAfter(Some(24 * 3600 * 1_000_000_000))
    }
}

impl FromStr for StaleAfter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(StaleAfter(None)),
            age => max_age(age).map(|age_ns| StaleAfter(Some(age_ns))),
        }
    }
}

/// Parses an age.
///
/// # Errors
///
/// If the text is not an age.
pub fn max_age(text: &str) -> Result<i64, String> {
    age_ns(text).filter(|age_ns| *age_ns > 0).ok_or("give an age such as 26h or 7d".to_owned())
}

/// Returns the nanoseconds of an age: a number of s, m, h, d or w.
pub fn age_ns(text: &str) -> Option<i64> {
    let count = text.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
    let seconds = match &text[count.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return None,
    };
    Some(count.parse::<u32>().ok().map(i64::from)?.saturating_mul(seconds * 1_000_000_000))
}
