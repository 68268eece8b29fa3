//! Limits as they are given: amounts of memory and of time.

use canopy_model::OwnerLimits;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

/// How much memory may be used, in bytes; `None` for any amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit(pub Option<usize>);

/// How long something may take; `None` for any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimit(pub Option<Duration>);

/// What the directories and files of one owner may ask of an index.
#[derive(clap::Args, Clone, Copy)]
pub struct OwnerLimitOptions {
    /// Access classes that the directories and files of one owner may ask for (root: any number);
    /// what goes beyond is for that owner and root alone
    /// [default: as it was last given, else 1024]
    #[arg(long, value_name = "N")]
    owner_classes: Option<usize>,
    /// Users and groups that the permissions and ACLs of one owner may name, likewise
    /// [default: as it was last given, else 16384]
    #[arg(long, value_name = "N")]
    owner_names: Option<usize>,
}

impl OwnerLimitOptions {
    /// Returns the limits, if any of them is given.
    pub fn given(self) -> Option<OwnerLimits> {
        let OwnerLimitOptions { owner_classes, owner_names } = self;
        let default = OwnerLimits::default();
        (owner_classes.is_some() || owner_names.is_some()).then(|| OwnerLimits {
            classes: owner_classes.unwrap_or(default.classes),
            names: owner_names.unwrap_or(default.names),
        })
    }
}

/// Parses a number of entries per second.
pub fn rate(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| "give a whole number of entries per second, at least 1".to_owned())
}

/// Reads an amount of memory.
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

/// Returns half of the machine's memory, in bytes; `None` where that cannot be told.
pub fn half_of_memory() -> Option<usize> {
    let about = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = about.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total_kb: usize = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    total_kb.checked_mul(512)
}
