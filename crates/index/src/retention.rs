//! Retention of older generations, choice of one by a reader, and the time for which files stay
//! that no generation needs any more.

use crate::error::Error;
use canopy_model::Generation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Most generations that a policy may keep: `CURRENT` names all of them.
const KEPT_MAX: u64 = 1000;

const SECOND_NS: i64 = 1_000_000_000;
const HOUR_NS: i64 = 3600 * SECOND_NS;
const DAY_NS: i64 = 24 * HOUR_NS;
const WEEK_NS: i64 = 7 * DAY_NS;

/// A generation that is there, besides its files: what `CURRENT` says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptGeneration {
    /// Its number.
    pub generation: Generation,
    /// When it was published, in nanoseconds since 1970.
    pub published_ns: i64,
}

/// How long files that have left stay for those who read an older generation, in nanoseconds.
const LEAVING_NS: i64 = 300 * SECOND_NS;

/// How long they stay however many they are.
const LEAVING_NS_MIN: i64 = 10 * SECOND_NS;

/// How many bytes may stay for longer, if a quarter of the index is less.
const LEAVING_BYTES_MIN: u64 = 256 << 20;

/// Most publications of which files may stay.
const LEAVING_MAX: usize = 256;

/// A publication that files have left with, which are still there: what `CURRENT` says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Leaving {
    /// The generation that needs them no more.
    pub(crate) generation: Generation,
    /// When it was published, in nanoseconds since 1970.
    pub(crate) published_ns: i64,
    /// How many bytes the files have, in whole MiB.
    pub(crate) bytes: u64,
}

impl Leaving {
    /// Returns how many of them, of which the newest is the first, stay while an index of so many
    /// bytes is published.
    pub(crate) fn staying(all: &[Leaving], now_ns: i64, index_bytes: u64) -> usize {
        let bytes_max = LEAVING_BYTES_MIN.max(index_bytes / 4);
        let mut bytes = 0_u64;
        let stays = |leaving: &&Leaving| {
            let age_ns = now_ns.saturating_sub(leaving.published_ns);
            bytes = bytes.saturating_add(leaving.bytes);
            // After the clock was set back, they would stay until it is there again.
            (0..LEAVING_NS_MIN).contains(&age_ns) || (age_ns < LEAVING_NS && bytes <= bytes_max)
        };
        all.iter().take(LEAVING_MAX).take_while(stays).count()
    }
}

/// The generation of an index to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The one with this number.
    Generation(Generation),
    /// The last one that was published at this time or before, in nanoseconds since 1970.
    Time(i64),
}

impl fmt::Display for Moment {
    /// Writes the number, or `@` and the seconds.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::Generation(number) => write!(formatter, "{number}"),
            Moment::Time(time_ns) => {
                let (seconds, rest) =
                    (time_ns.div_euclid(SECOND_NS), time_ns.rem_euclid(SECOND_NS));
                write!(formatter, "@{seconds}.{rest:09}")
            }
        }
    }
}

impl Moment {
    /// Finds the generation among those that are there, the newest first. An error names the
    /// nearest ones.
    pub(crate) fn find(self, there: &[KeptGeneration]) -> Result<KeptGeneration, Error> {
        let newest_older = match self {
            Moment::Generation(number) => there.iter().find(|kept| kept.generation <= number),
            Moment::Time(time_ns) => there.iter().find(|kept| kept.published_ns <= time_ns),
        };
        match (self, newest_older) {
            (Moment::Generation(number), Some(kept)) if kept.generation != number => {
                let newer = there.iter().rfind(|kept| kept.generation > number);
                let newer = newer.map(|kept| kept.generation);
                Err(Error::NotKept { number, nearest: [Some(kept.generation), newer] })
            }
            (_, Some(kept)) => Ok(*kept),
            (Moment::Generation(number), None) => {
                let oldest = there.last().map(|kept| kept.generation);
                Err(Error::NotKept { number, nearest: [None, oldest] })
            }
            (Moment::Time(_), None) => Err(Error::BeforeOldest(
                there.last().map_or(Generation::NONE, |kept| kept.generation),
            )),
        }
    }
}

/// A span of which the last generation is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Span {
    /// Each generation by itself.
    Generation,
    Hour,
    Day,
    Week,
}

impl Span {
    /// Returns the number of the span that a time is in. Days are those of UTC, weeks begin on
    /// Monday.
    fn number(self, time_ns: i64) -> i64 {
        match self {
            Span::Generation => 0,
            Span::Hour => time_ns.div_euclid(HOUR_NS),
            Span::Day => time_ns.div_euclid(DAY_NS),
            // 1970 began on a Thursday.
            Span::Week => (time_ns + 3 * DAY_NS).div_euclid(WEEK_NS),
        }
    }

    fn letter(self) -> &'static str {
        match self {
            Span::Generation => "",
            Span::Hour => "h",
            Span::Day => "d",
            Span::Week => "w",
        }
    }
}

/// Older generations that stay when one is published: the last ones, or the last one of each of the
/// last hours, days or weeks. As text `10,24h,14d,8w`, or `none`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Retention(Vec<(u64, Span)>);

impl Retention {
    /// Keeps the last generations, as many as given.
    pub(crate) fn of_last(count: u64) -> Self {
        Retention(vec![(count.clamp(1, KEPT_MAX), Span::Generation)])
    }

    /// Returns whether nothing is kept.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the generations that stay. They are given the newest first, with the one being
    /// published in front, which stays too. A generation left out once is gone for ever.
    pub(crate) fn kept(&self, all: &[KeptGeneration]) -> Vec<KeptGeneration> {
        let Some(newest) = all.first() else { return Vec::new() };
        let mut kept = BTreeSet::from([newest.generation]);
        for &(count, span) in &self.0 {
            if span == Span::Generation {
                kept.extend(all.iter().take(count as usize).map(|known| known.generation));
                continue;
            }
            let first = span.number(newest.published_ns) - count as i64;
            let mut spans = BTreeSet::new();
            for known in all {
                let number = span.number(known.published_ns);
                // After the clock was set back, there are spans to come among them.
                let counts = number > first && (spans.len() as u64) < count;
                if counts && spans.insert(number) {
                    kept.insert(known.generation);
                }
            }
        }
        all.iter().filter(|known| kept.contains(&known.generation)).copied().collect()
    }
}

impl FromStr for Retention {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Retention::default());
        }
        let mut spans = Vec::new();
        for part in text.split(',') {
            let wrong = |why: String| {
                format!("'{part}' is {why}, as in 24h,14d,8w; 'none' alone keeps nothing older")
            };
            let digits = part.trim_end_matches(|letter: char| !letter.is_ascii_digit());
            let span = match &part[digits.len()..] {
                "" => Span::Generation,
                "h" => Span::Hour,
                "d" => Span::Day,
                "w" => Span::Week,
                _ => return Err(wrong("no number of h, d or w".to_owned())),
            };
            match digits.parse() {
                Ok(count @ 1..=KEPT_MAX) => spans.push((count, span)),
                _ => return Err(wrong(format!("not of 1 to {KEPT_MAX}"))),
            }
        }
        let sum: u64 = spans.iter().map(|(count, _)| count).sum();
        if sum > KEPT_MAX {
            return Err(format!("these are {sum} generations; at most {KEPT_MAX} can be kept"));
        }
        Ok(Retention(spans))
    }
}

impl fmt::Display for Retention {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |(count, span): &(u64, Span)| format!("{count}{}", span.letter());
        let parts: Vec<String> = self.0.iter().map(text).collect();
        match parts.is_empty() {
            true => formatter.write_str("none"),
            false => formatter.write_str(&parts.join(",")),
        }
    }
}

impl TryFrom<String> for Retention {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Retention> for String {
    fn from(retention: Retention) -> String {
        retention.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_have_left_stay_for_readers_within_bounds() {
        let leaving = |(age_s, megabytes): &(i64, u64)| Leaving {
            generation: Generation(1),
            published_ns: (1000 - age_s) * SECOND_NS,
            bytes: megabytes << 20,
        };
        let staying = |ages: &[(i64, u64)], index_megabytes: u64| {
            let all: Vec<Leaving> = ages.iter().map(leaving).collect();
            Leaving::staying(&all, 1000 * SECOND_NS, index_megabytes << 20)
        };
        assert_eq!(staying(&[(0, 1), (200, 1), (299, 1), (300, 1)], 0), 3);
        // However many they are, for a moment; then within a share of the index.
        assert_eq!(staying(&[(0, 5000), (9, 5000), (10, 1)], 0), 2);
        assert_eq!(staying(&[(20, 200), (21, 56), (22, 1)], 4), 2);
        assert_eq!(staying(&[(20, 200), (21, 56), (22, 1)], 4000), 3);
        // A clock that was set back.
        assert_eq!(staying(&[(-500, 1), (20, 1)], 0), 2);
        assert_eq!(staying(&[(0, 5000), (-500, 5000), (-500, 1)], 0), 1);
        assert_eq!(staying(&[(0, 0); 1000], 0), LEAVING_MAX);
    }

    /// Publishes a generation every so often, and returns the age in hours of those that stay.
    fn ages_in_hours(policy: &str, every_minutes: i64, count: i64) -> Vec<i64> {
        let policy: Retention = policy.parse().unwrap();
        let mut there: Vec<KeptGeneration> = Vec::new();
        // A Monday, at noon.
        let begin_ns = 1_700_481_600 * 1_000_000_000;
        for number in 0..count {
            let published_ns = begin_ns + number * every_minutes * 60_000_000_000;
            there.insert(
                0,
                KeptGeneration { generation: Generation(1 + number as u64), published_ns },
            );
            there = policy.kept(&there);
            assert_eq!(there[0].generation, Generation(1 + number as u64));
        }
        there.iter().map(|kept| (there[0].published_ns - kept.published_ns) / HOUR_NS).collect()
    }

    #[test]
    fn the_last_of_each_span_stays() {
        assert_eq!(ages_in_hours("none", 60, 9), [0]);
        assert_eq!(ages_in_hours("3", 60, 9), [0, 1, 2]);
        assert_eq!(ages_in_hours("3h", 60, 9), [0, 1, 2]);
        // Several an hour, the newest at its half.
        assert_eq!(ages_in_hours("3h", 10, 100), [0, 0, 1]);
        // The newest one at noon on the tenth day, the others late at night.
        assert_eq!(ages_in_hours("3d", 60, 24 * 9 + 1), [0, 13, 37]);
        assert_eq!(
            ages_in_hours("2h,2d,3w", 60, 24 * 30 + 1),
            [0, 1, 13, 2 * 24 + 13, 9 * 24 + 13]
        );
        // Nothing was published for most of the days.
        assert_eq!(ages_in_hours("5d", 60 * 48, 9), [0, 48, 96]);
    }

    #[test]
    fn a_clock_that_is_set_back_keeps_no_more() {
        let policy: Retention = "5h,3d".parse().unwrap();
        let mut there: Vec<KeptGeneration> = Vec::new();
        let mut generation = 0;
        for year in (1..50).rev() {
            for hour in 0..100 {
                generation += 1;
                let published_ns = year * 365 * DAY_NS + hour * HOUR_NS;
                there
                    .insert(0, KeptGeneration { generation: Generation(generation), published_ns });
                there = policy.kept(&there);
                assert!(there.len() <= 8, "{there:?}");
            }
            // The first generation published afterwards does not remove all that were kept before.
            let published_ns = (year - 1) * 365 * DAY_NS;
            let next = KeptGeneration { generation: Generation(generation + 1), published_ns };
            let all: Vec<_> = std::iter::once(next).chain(there.iter().copied()).collect();
            assert!(policy.kept(&all).len() > 4, "{all:?}");
        }
    }

    #[test]
    fn policies_are_read_as_they_are_shown() {
        for text in ["none", "24h", "10", "7,24h,14d,8w", "1000w"] {
            assert_eq!(text.parse::<Retention>().unwrap().to_string(), text);
        }
        for wrong in ["", "0h", "h", "24m", "24h,", "1001d", "600h,600d", "-1d", "1 d", "24H", "é"]
        {
            assert!(wrong.parse::<Retention>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_moment_is_the_last_generation_before_it() {
        let kept = |(number, published_ns)| KeptGeneration {
            generation: Generation(number),
            published_ns,
        };
        let there = [(9, 90), (5, 50), (4, 40)].map(kept);
        let number = |moment: Moment| moment.find(&there).map(|kept| kept.generation.0);
        let at = |number| Moment::Generation(Generation(number));
        for (time_ns, expected) in [(90, 9), (1000, 9), (89, 5), (50, 5), (40, 4)] {
            assert_eq!(number(Moment::Time(time_ns)).unwrap(), expected, "{time_ns}");
        }
        assert!(matches!(number(Moment::Time(39)), Err(Error::BeforeOldest(Generation(4)))));
        assert_eq!(number(at(5)).unwrap(), 5);
        for (asked, expected) in
            [(7, [Some(5), Some(9)]), (1, [None, Some(4)]), (12, [Some(9), None])]
        {
            match number(at(asked)) {
                Err(Error::NotKept { number, nearest }) => {
                    let nearest = nearest.map(|nearest| nearest.map(|nearest| nearest.0));
                    assert_eq!((number.0, nearest), (asked, expected));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
