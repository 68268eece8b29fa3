//! Limits as users write them.

use anyhow::{Context, bail};
use canopy::commands::ns::Quota as Arguments;
use canopy_namespace::quota::Limits;
use canopy_text::parse_size;

/// Sets the limits that the arguments name; others stay.
pub fn change(limits: &mut Limits, arguments: &Arguments) -> anyhow::Result<()> {
    if let Some(text) = &arguments.bytes {
        [limits.bytes_soft, limits.bytes_hard] = pair(text).context("--bytes")?;
    }
    if let Some(text) = &arguments.inodes {
        [limits.inodes_soft, limits.inodes_hard] = pair(text).context("--inodes")?;
    }
    if let Some(text) = &arguments.grace {
        limits.grace_s = seconds(text).context("--grace")?;
    }
    Ok(())
}

/// Reads `HARD`, `SOFT:HARD` or `SOFT:`.
fn pair(text: &str) -> anyhow::Result<[u64; 2]> {
    let (soft, hard) = text.split_once(':').unwrap_or(("", text));
    let number = |text: &str| if text.is_empty() { Some(0) } else { parse_size(text).ok() };
    let limits = number(soft).zip(number(hard)).filter(|_| !text.is_empty());
    let Some((soft, hard)) = limits else {
        bail!("{text:?} is not a limit: write HARD or SOFT:HARD, such as 10G:12G");
    };
    if hard != 0 && soft > hard {
        bail!("{text:?}: the soft limit comes first, and is not above the hard one");
    }
    Ok([soft, hard])
}

/// Reads a time such as `12h`.
fn seconds(text: &str) -> anyhow::Result<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => 0,
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    match number {
        Some(seconds) if unit > 0 => Ok(seconds),
        _ => bail!("{text:?} is not a time: write a number and s, m, h, d or w, such as 12h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_one_number_or_two() {
        for (text, expected) in [
            ("10G", [0, 10 << 30]),
            ("1k:2k", [1024, 2048]),
            ("5:", [5, 0]),
            (":5", [0, 5]),
            ("0", [0, 0]),
            ("1MB", [0, 1_000_000]),
        ] {
            assert_eq!(pair(text).unwrap(), expected, "{text}");
        }
        for text in ["", "2:1", "x", "1:2:3", "-1", "1 G", "99999999999999999999"] {
            assert!(pair(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_units() {
        for (text, expected) in [("90", 90), ("2m", 120), ("12h", 43_200), ("1w", 604_800)] {
            assert_eq!(seconds(text).unwrap(), expected, "{text}");
        }
        for text in ["", "h", "1y", "-1d", "1.5h", "99999999999999999w", "1dd"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
