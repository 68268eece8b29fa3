//! Tests of where Lustre and IBM Storage Scale keep an entry, which extended attributes tell. Names
//! and meaning are those of `lfs find`.

use super::arguments::{invalid, is_digits, parse_number};
use super::test::Number;
use canopy_model::lustre::{
    Component, HSM_KEYS, HsmState, LAYOUT_KEYS, Layout, PROJECT_KEY, STRIPES_KEYS, Stripes, project,
};
use canopy_model::storage_scale;
use canopy_text::{Characters, Glob};
use std::ops::RangeInclusive;

/// A test of the storage of an entry.
#[derive(Debug)]
pub enum StorageTest {
    /// `-ost`: an object on one of these
    Ost(Vec<RangeInclusive<u32>>),
    /// `-mdt-index`: a striped directory of one of these
    Mdt(Vec<RangeInclusive<u32>>),
    /// `-pool`
    Pool(Glob),
    /// `-stripe-count`
    StripeCount(Number),
    /// `-stripe-size`, in units of so many bytes, rounded up
    StripeSize(Number, i64),
    /// `-component-count`
    ComponentCount(Number),
    /// `-hsm-state`: all of these bits
    HsmState(u32),
    /// `-projid`
    Project(Number),
}

impl StorageTest {
    /// Takes the argument of a test.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, String> {
        let wrong = || invalid(name, text);
        Ok(match name {
            "-ost" => StorageTest::Ost(targets(text, "OST").ok_or_else(wrong)?),
            "-mdt-index" => StorageTest::Mdt(targets(text, "MDT").ok_or_else(wrong)?),
            "-pool" => {
                let pattern = Glob::new(text.as_bytes(), false, Characters::of_locale());
                StorageTest::Pool(pattern.map_err(|error| error.to_string())?)
            }
            "-stripe-count" => StorageTest::StripeCount(parse_number(name, text)?),
            "-stripe-size" => {
                let (number, unit) = sized(text);
                StorageTest::StripeSize(parse_number(name, number).map_err(|_| wrong())?, unit)
            }
            "-projid" => StorageTest::Project(parse_number(name, text)?),
            "-component-count" => StorageTest::ComponentCount(parse_number(name, text)?),
            _ => {
                let bits: Option<Vec<u32>> = text.split(',').map(HsmState::bit).collect();
                let bits = bits.ok_or_else(wrong)?;
                StorageTest::HsmState(bits.into_iter().fold(0, |all, bit| all | bit))
            }
        })
    }

    /// Returns whether the attribute of this name may tell.
    pub(super) fn asks(&self, key: &str) -> bool {
        match self {
            StorageTest::Mdt(_) => STRIPES_KEYS.contains(&key),
            StorageTest::HsmState(_) => HSM_KEYS.contains(&key),
            StorageTest::Project(_) => key.as_bytes() == PROJECT_KEY.to_bytes(),
            StorageTest::Pool(_) if key == storage_scale::POOL => true,
            _ => LAYOUT_KEYS.contains(&key),
        }
    }

    /// Returns whether the value of an attribute that may tell passes; `None` if it cannot be
    /// decoded.
    pub(super) fn holds(&self, key: &str, value: &[u8]) -> Option<bool> {
        match self {
            StorageTest::Mdt(among) => {
                return Some(Stripes::decode(value)?.mdt.is_some_and(|mdt| has(among, mdt)));
            }
            StorageTest::HsmState(bits) => {
                return Some(HsmState::decode(value)?.flags & bits == *bits);
            }
            StorageTest::Project(number) => {
                // As good as none, and mostly not told.
                let id = Some(project(value)?).filter(|id| *id > 0);
                return Some(id.is_some_and(|id| number.holds(id.into())));
            }
            StorageTest::Pool(pattern) if key == storage_scale::POOL => {
                return Some(is_pool(pattern, value));
            }
            _ => {}
        }
        let layout = Layout::decode(value)?;
        Some(match self {
            StorageTest::Ost(among) => {
                layout.components.iter().any(|part| part.osts().any(|(_, ost)| has(among, ost)))
            }
            StorageTest::Pool(pattern) => {
                layout.instantiated().any(|part| !part.is_foreign() && is_pool(pattern, part.pool))
            }
            StorageTest::StripeCount(number) => {
                let count = |count: Option<u16>| count.unwrap_or(u16::MAX).into();
                number.holds(layout.main().map_or(0, |part| count(part.stripe_count)))
            }
            StorageTest::StripeSize(number, unit) => {
                let size = layout.main().map(|part| part.stripe_size);
                size.is_some_and(|size| number.units(*unit).contains(size.into()))
            }
            StorageTest::ComponentCount(number) => match layout.is_composite {
                true => {
                    !layout.components.is_empty() && number.holds(layout.components.len() as i64)
                }
                false => !layout.components.iter().any(Component::is_foreign) && number.holds(0),
            },
            StorageTest::Mdt(_) | StorageTest::HsmState(_) | StorageTest::Project(_) => false,
        })
    }
}

fn has(among: &[RangeInclusive<u32>], index: u32) -> bool {
    among.iter().any(|range| range.contains(&index))
}

/// Returns whether a pool has such a name: none only if that is what is asked for.
fn is_pool(pattern: &Glob, name: &[u8]) -> bool {
    let is_none = matches!(pattern, Glob::Literal(text) if text.is_empty());
    name.is_empty() == is_none && pattern.matches(&canopy_model::escape(name))
}

/// Takes indexes (`17`), names of targets (`scratch-OST0011_UUID`) and ranges from one to another
/// (`0-3`), with commas between.
fn targets(text: &str, kind: &str) -> Option<Vec<RangeInclusive<u32>>> {
    let index = |text: &str| match text.split_once(kind) {
        None => is_digits(text).then(|| text.parse().ok())?,
        // That is a range, as no file system has a number for a name.
        Some((before, _)) if is_digits(before.trim_end_matches('-')) => None,
        Some((_, digits)) => {
            let digits = digits.strip_suffix("_UUID").unwrap_or(digits);
            let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            is_hex.then(|| u32::from_str_radix(digits, 16).ok())?
        }
    };
    let range = |text: &str| {
        if let Some(index) = index(text) {
            return Some(index..=index);
        }
        let mut halves = text.match_indices('-').map(|(at, _)| (&text[..at], &text[at + 1..]));
        let range = halves.find_map(|(first, last)| Some(index(first)?..=index(last)?));
        range.filter(|range| !range.is_empty())
    };
    text.split(',').map(range).collect()
}

/// Splits a number of bytes from its unit.
fn sized(text: &str) -> (&str, i64) {
    const UNITS: &str = "KMGTPE";
    let unit = text.chars().last().and_then(|letter| UNITS.find(letter.to_ascii_uppercase()));
    match unit {
        Some(power) => (&text[..text.len() - 1], 1 << (10 * (power + 1))),
        None => (text, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopy_model::fuzzing::lustre::{composite, hsm, layouts, plain, striped};

    /// Returns whether a value passes a test.
    fn passes(name: &str, text: &str, key: &str, value: &[u8]) -> bool {
        let test = StorageTest::parse(name, text).unwrap();
        test.asks(key) && test.holds(key, value).unwrap()
    }

    #[test]
    fn numbers_are_those_that_lfs_find_goes_by() {
        // The last part with storage has 2 stripes of 1 MiB in the pool flash, on OSTs 3 and 17.
        let parts = &layouts()[4];
        for (name, text, wanted) in [
            ("-ost", "17", true),
            ("-ost", "4-16,18", false),
            ("-ost", "1,scratch-OST0011_UUID", true),
            ("-ost", "OST0003", true),
            ("-ost", "5", false),
            ("-ost", "OST0001-OST0003", true),
            ("-ost", "OST0012-OST0013", false),
            ("-ost", "my-fs-OST0010-my-fs-OST0012_UUID", true),
            ("-ost", "0-OST0003", true),
            ("-ost", "0-OST0002", false),
            ("-pool", "flash", true),
            ("-pool", "f*", true),
            ("-pool", "*", true),
            ("-pool", "disk", false),
            ("-pool", "", true),
            ("-stripe-count", "2", true),
            ("-stripe-count", "+2", false),
            ("-stripe-size", "1M", true),
            ("-stripe-size", "1048576", true),
            ("-stripe-size", "-1M", false),
            ("-stripe-size", "+1023k", true),
            ("-component-count", "4", true),
            ("-component-count", "-4", false),
        ] {
            assert_eq!(passes(name, text, "lustre.lov", parts), wanted, "{name} {text}");
            assert!(!passes(name, text, "trusted.lma", parts));
        }
        let simple = plain(1, 1 << 16, 0xFFFF, "", &[]);
        assert!(passes("-component-count", "0", "trusted.lov", &simple));
        assert!(passes("-stripe-count", "+1000", "trusted.lov", &simple));
        assert!(passes("-pool", "", "trusted.lov", &simple));
        assert!(!passes("-pool", "*", "trusted.lov", &simple));
        let foreign = &layouts()[3];
        assert!(passes("-stripe-count", "0", "trusted.lov", foreign));
        assert!(!passes("-component-count", "0", "trusted.lov", foreign));
        assert!(!passes("-pool", "", "trusted.lov", foreign));
        assert!(!passes("-stripe-size", "0", "trusted.lov", foreign));
        let planned = composite(&[(1, 0, 0, u64::MAX, simple)]);
        assert!(passes("-stripe-count", "0", "trusted.lov", &planned));
        assert!(!passes("-pool", "", "trusted.lov", &planned));
        assert!(passes("-pool", "sys?em", "gpfs.pool", b"system"));
        assert!(!passes("-stripe-count", "+0", "gpfs.pool", b"system"));
    }

    #[test]
    fn directories_and_archives_have_tests() {
        let directory = striped(&[2, 3], 2);
        assert!(passes("-mdt-index", "0-2", "trusted.lmv", &directory));
        assert!(!passes("-mdt-index", "3", "trusted.lmv", &directory));
        assert!(passes("-mdt-index", "scratch-MDT0002", "lustre.lmv", &directory));
        let archived = hsm(0x9, 1);
        assert!(passes("-hsm-state", "exists,archived", "trusted.hsm", &archived));
        assert!(!passes("-hsm-state", "exists,released", "trusted.hsm", &archived));
        assert!(passes("-hsm-state", "exists,exists", "trusted.hsm", &archived));
        assert!(!passes("-hsm-state", "dirty", "trusted.hsm", &archived));
        assert!(passes("-projid", "1000", "trusted.projid", b"1000"));
        assert!(!passes("-projid", "-1000", "trusted.projid", b"1000"));
        assert!(!passes("-projid", "-1000", "trusted.projid", b"0"));
        for not_written_so in [&b"+1000"[..], b"-1000", b" 1000", b"", b"4294967296"] {
            let test = StorageTest::parse("-projid", "1000").unwrap();
            assert_eq!(test.holds("trusted.projid", not_written_so), None);
        }
        assert!(StorageTest::parse("-ost", "1").unwrap().holds("lustre.lov", b"short").is_none());
    }

    #[test]
    fn other_values_than_targets_are_errors() {
        let wrong = [
            ("-ost", ""),
            ("-ost", "1,"),
            ("-ost", "3-1"),
            ("-ost", "OSTxyz"),
            ("-ost", "OST+11"),
            ("-ost", "OST0003-OST0001"),
            ("-ost", "1-2-3"),
            ("-ost", "MDT0001"),
            ("-ost", "+1"),
            ("-stripe-size", "M"),
            ("-stripe-size", "1X"),
            ("-hsm-state", "gone"),
            ("-hsm-state", ""),
            ("-component-count", "x"),
        ];
        for (name, text) in wrong {
            let error = StorageTest::parse(name, text).unwrap_err();
            assert_eq!(error, format!("invalid argument `{text}' to `{name}'"));
        }
    }
}
