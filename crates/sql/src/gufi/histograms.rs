//! GUFI's histograms, in the text form that its parsers read.
//!
//! | histogram | text |
//! | --- | --- |
//! | of powers | `base;buckets;below;above;` and `exponent:count;` for each that is not empty |
//! | of permissions | `octal:count;` |
//! | of ages | `reference;` and `upper end in seconds:count;` |
//! | of categories | `categories;` and `bytes:name:count;` |

use super::error::{Error, Result};
use super::text;
use super::values::{integers, is_text, numbers, texts};
use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use std::collections::BTreeMap;
use std::marker::PhantomData;

/// Counts of values.
pub(super) trait Histogram: Default + std::fmt::Debug + Send + Sync + 'static {
    /// Adds rows of the arguments of the function.
    fn add(&mut self, arguments: &[ArrayRef]) -> Result<()>;
    /// Adds the counts of a text of this histogram.
    fn add_text(&mut self, text: &str) -> Result<()>;
    /// Returns the text, of all that was counted.
    fn text(&self) -> String;
    /// Returns the result of the function: the text, unless only a part of it was asked for.
    fn answer(&self) -> Option<String> {
        Some(self.text())
    }
    /// Returns how much memory it has on the heap, in bytes.
    fn heap_bytes(&self) -> usize {
        0
    }
}

fn bad(text: &str) -> Error {
    Error::Histogram(text.to_owned())
}

/// Returns the whole number up to a separator, and the rest.
fn number(text: &str, separator: char) -> Option<(u64, &str)> {
    let (number, rest) = text.split_once(separator)?;
    Some((number.parse().ok()?, rest))
}

/// Adds the pairs `bucket:count;` until the end of a text.
fn pairs(mut text: &str, mut add: impl FnMut(&str, u64) -> Option<()>) -> Option<()> {
    while !text.is_empty() {
        let (bucket, rest) = text.split_once(':')?;
        let (count, rest) = number(rest, ';')?;
        add(bucket, count)?;
        text = rest;
    }
    Some(())
}

/// `log_hist(value, base, buckets)`: bucket i has the values in [base^i, base^(i+1)). A text counts
/// by its length.
#[derive(Debug, Default)]
pub(super) struct Powers {
    base: u64,
    below: u64,
    above: u64,
    buckets: Vec<u64>,
}

/// More powers than 64 bits have.
const BUCKETS_MAX: u64 = 4096;

impl Powers {
    fn begin(&mut self, base: u64, buckets: u64) -> Result<()> {
        if base < 2 || buckets > BUCKETS_MAX {
            return Err(Error::Buckets { base, buckets });
        }
        if self.base == 0 {
            (self.base, self.buckets) = (base, vec![0; buckets as usize]);
        }
        if (self.base, self.buckets.len() as u64) != (base, buckets) {
            return Err(Error::OtherBuckets);
        }
        Ok(())
    }

    fn count(&mut self, value: u64) {
        if value == 0 {
            self.below += 1;
            return;
        }
        let exponent = ((value as f64).log2() / (self.base as f64).log2()) as usize;
        match self.buckets.get_mut(exponent) {
            Some(bucket) => *bucket += 1,
            None => self.above += 1,
        }
    }

    fn parse(&mut self, text: &str) -> Option<Result<()>> {
        let (base, rest) = number(text, ';')?;
        let (buckets, rest) = number(rest, ';')?;
        let (below, rest) = number(rest, ';')?;
        let (above, rest) = number(rest, ';')?;
        if base == 0 {
            return Some(Ok(()));
        }
        if let Err(error) = self.begin(base, buckets) {
            return Some(Err(error));
        }
        self.below += below;
        self.above += above;
        pairs(rest, |bucket, count| {
            *self.buckets.get_mut(bucket.parse::<usize>().ok()?)? += count;
            Some(())
        })?;
        Some(Ok(()))
    }
}

impl Histogram for Powers {
    fn add(&mut self, arguments: &[ArrayRef]) -> Result<()> {
        if arguments[0].is_empty() {
            return Ok(());
        }
        let bases = integers(&arguments[1])?;
        let counts = integers(&arguments[2])?;
        let positive = |number: i64| u64::try_from(number).unwrap_or(0);
        self.begin(positive(bases.value(0)), positive(counts.value(0)))?;
        if is_text(&arguments[0]) {
            let values = texts(&arguments[0])?;
            values.iter().for_each(|value| self.count(value.map_or(0, str::len) as u64));
        } else if arguments[0].data_type() == &DataType::Float64 {
            let values = numbers(&arguments[0])?;
            let values = values.iter().map(Option::unwrap_or_default);
            values.filter(|value| *value >= 0.0).for_each(|value| self.count(value as u64));
        } else {
            let values = integers(&arguments[0])?;
            let values = values.iter().map(Option::unwrap_or_default);
            values.filter_map(|value| value.try_into().ok()).for_each(|value| self.count(value));
        }
        Ok(())
    }

    fn add_text(&mut self, text: &str) -> Result<()> {
        self.parse(text).ok_or_else(|| bad(text))?
    }

    fn text(&self) -> String {
        let mut text =
            format!("{};{};{};{};", self.base, self.buckets.len(), self.below, self.above);
        for (exponent, count) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            text.push_str(&format!("{exponent}:{count};"));
        }
        text
    }
}

/// `mode_hist(mode)`: by the nine bits of permissions.
#[derive(Debug, Default)]
pub(super) struct Modes(BTreeMap<u32, u64>);

impl Histogram for Modes {
    fn add(&mut self, arguments: &[ArrayRef]) -> Result<()> {
        for mode in &integers(&arguments[0])? {
            *self.0.entry((mode.unwrap_or(0) & 0o777) as u32).or_default() += 1;
        }
        Ok(())
    }

    fn add_text(&mut self, text: &str) -> Result<()> {
        pairs(text, |mode, count| {
            let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o777)?;
            *self.0.entry(mode).or_default() += count;
            Some(())
        })
        .ok_or_else(|| bad(text))
    }

    fn text(&self) -> String {
        self.0.iter().map(|(mode, count)| format!("{mode:03o}:{count};")).collect()
    }
}

/// Upper ends of ages in seconds; the last stands for all that is older.
const AGES_S: [i64; 13] = [
    0,
    1,
    60,
    3_600,
    86_400,
    604_800,
    2_419_200,
    31_536_000,
    63_072_000,
    157_680_000,
    315_360_000,
    630_720_000,
    630_720_001,
];

/// `time_hist(time, reference)`: by the distance of times from one.
#[derive(Debug, Default)]
pub(super) struct Ages {
    reference_s: Option<i64>,
    buckets: [u64; AGES_S.len()],
}

impl Ages {
    fn parse(&mut self, text: &str) -> Option<()> {
        let (reference, rest) = text.split_once(';')?;
        let reference: i64 = reference.parse().ok()?;
        if self.reference_s.unwrap_or(0) == 0 && (reference != 0 || !rest.is_empty()) {
            self.reference_s = Some(reference);
        }
        if reference != 0 && self.reference_s != Some(reference) {
            return None;
        }
        pairs(rest, |end, count| {
            let end: i64 = end.parse().ok()?;
            self.buckets[AGES_S.iter().position(|known| *known == end)?] += count;
            Some(())
        })
    }
}

impl Histogram for Ages {
    fn add(&mut self, arguments: &[ArrayRef]) -> Result<()> {
        let times = integers(&arguments[0])?;
        let references = integers(&arguments[1])?;
        for (time, reference) in times.iter().zip(&references) {
            let reference = *self.reference_s.get_or_insert(reference.unwrap_or(0));
            let age = reference.saturating_sub(time.unwrap_or(0));
            let last = AGES_S.len() - 1;
            self.buckets[AGES_S[..last].iter().position(|end| age < *end).unwrap_or(last)] += 1;
        }
        Ok(())
    }

    fn add_text(&mut self, text: &str) -> Result<()> {
        self.parse(text).ok_or_else(|| Error::Ages(text.to_owned()))
    }

    fn text(&self) -> String {
        let mut text = format!("{};", self.reference_s.unwrap_or(0));
        for (end, count) in AGES_S.iter().zip(self.buckets).filter(|(_, count)| *count > 0) {
            text.push_str(&format!("{end}:{count};"));
        }
        text
    }
}

/// `category_hist(text, keep_1, sort)`: by the text itself. Categories are always sorted.
pub(super) type Categories = Counts<Text>;

/// `extension_hist(name, keep_1, sort)`: by extension.
pub(super) type Extensions = Counts<Extension>;

/// `mode_count(value)`: the most frequent value as `bytes:value:count;`, if one is more frequent
/// than all others.
pub(super) type MostFrequent = Counts<Mode>;

/// Categories of texts, and the answer from their counts.
pub(super) trait Counted: Default + std::fmt::Debug + Send + Sync + 'static {
    /// Returns the category of a text.
    fn category(text: &str) -> &str {
        text
    }

    /// Returns the result of the function for these categories.
    fn answer(counts: &[(&String, &u64)]) -> Option<String> {
        Some(listed(counts))
    }
}

#[derive(Debug, Default)]
pub(super) struct Text;

#[derive(Debug, Default)]
pub(super) struct Extension;

#[derive(Debug, Default)]
pub(super) struct Mode;

impl Counted for Text {}

impl Counted for Extension {
    fn category(name: &str) -> &str {
        text::extension(name).unwrap_or("no-ext")
    }
}

impl Counted for Mode {
    fn answer(counts: &[(&String, &u64)]) -> Option<String> {
        let (name, count) = counts.iter().max_by_key(|(_, count)| **count)?;
        let alone = counts.iter().filter(|(_, other)| other == count).count() == 1;
        alone.then(|| format!("{}:{name}:{count};", name.len()))
    }
}

/// Counts by category.
#[derive(Debug, Default)]
pub(super) struct Counts<C> {
    counts: BTreeMap<String, u64>,
    /// Whether categories that were seen once are left out of the answer.
    repeated_only: bool,
    counted: PhantomData<C>,
}

impl<C: Counted> Counts<C> {
    fn count(&mut self, name: &str, times: u64) {
        match self.counts.get_mut(name) {
            Some(count) => *count += times,
            None => _ = self.counts.insert(name.to_owned(), times),
        }
    }

    fn parse(&mut self, text: &str) -> Option<()> {
        // A '!' in front is ours: between threads, it tells that categories seen once are left out.
        let (repeated_only, text) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (self.repeated_only, text),
        };
        self.repeated_only = repeated_only;
        let (categories, mut rest) = number(text, ';')?;
        for _ in 0..categories {
            let (bytes, named) = number(rest, ':')?;
            let bytes = usize::try_from(bytes).ok()?;
            let name = named.get(..bytes)?;
            let (count, following) = number(named.get(bytes..)?.strip_prefix(':')?, ';')?;
            self.count(name, count);
            rest = following;
        }
        rest.is_empty().then_some(())
    }
}

impl<C: Counted> Histogram for Counts<C> {
    fn add(&mut self, arguments: &[ArrayRef]) -> Result<()> {
        if let Some(keep) = arguments.get(1).filter(|keep| !keep.is_empty()) {
            self.repeated_only = integers(keep)?.value(0) == 0;
        }
        let values = texts(&arguments[0])?;
        values.iter().flatten().for_each(|value| self.count(C::category(value), 1));
        Ok(())
    }

    fn add_text(&mut self, text: &str) -> Result<()> {
        self.parse(text).ok_or_else(|| bad(text))
    }

    fn text(&self) -> String {
        let all: Vec<_> = self.counts.iter().collect();
        format!("{}{}", if self.repeated_only { "!" } else { "" }, listed(&all))
    }

    fn answer(&self) -> Option<String> {
        let kept = self.counts.iter().filter(|(_, count)| **count > 1 || !self.repeated_only);
        C::answer(&kept.collect::<Vec<_>>())
    }

    fn heap_bytes(&self) -> usize {
        self.counts.keys().map(|name| name.len() + 64).sum()
    }
}

fn listed(counts: &[(&String, &u64)]) -> String {
    let mut text = format!("{};", counts.len());
    for (name, count) in counts {
        text.push_str(&format!("{}:{name}:{count};", name.len()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float64Array, Int64Array, StringArray};
    use std::sync::Arc;

    fn ints(values: &[Option<i64>]) -> ArrayRef {
        Arc::new(Int64Array::from(values.to_vec()))
    }

    fn same(value: i64, rows: usize) -> ArrayRef {
        Arc::new(Int64Array::from(vec![value; rows]))
    }

    fn words(values: &[Option<&str>]) -> ArrayRef {
        Arc::new(StringArray::from(values.to_vec()))
    }

    fn counted<H: Histogram>(arguments: &[ArrayRef]) -> H {
        let mut histogram = H::default();
        histogram.add(arguments).unwrap();
        histogram
    }

    /// If two histograms each count a part of the rows, their sum equals one of all rows.
    fn combined<H: Histogram>(arguments: &[ArrayRef]) -> String {
        let all = counted::<H>(arguments);
        let rows = arguments[0].len();
        for first in 0..=rows {
            let part = |from: usize, rows: usize| -> Vec<ArrayRef> {
                arguments.iter().map(|column| column.slice(from, rows)).collect()
            };
            let mut sum = H::default();
            for part in [part(0, first), part(first, rows - first)] {
                sum.add_text(&counted::<H>(&part).text()).unwrap();
            }
            assert_eq!(sum.answer(), all.answer(), "{first}");
        }
        all.answer().unwrap_or_default()
    }

    // The expected texts are what gufi_sqlite3 gives for these values.
    #[test]
    fn texts_are_those_of_gufi() {
        let numbers =
            [Some(1), Some(5), Some(1000), Some(-3), None, Some(0), Some(70_000), Some(2)];
        let numbers = ints(&numbers);
        let rows = numbers.len();
        let powers = |base, buckets| {
            combined::<Powers>(&[numbers.clone(), same(base, rows), same(buckets, rows)])
        };
        assert_eq!(powers(2, 8), "2;8;2;2;0:1;1:1;2:1;");
        assert_eq!(powers(10, 3), "10;3;2;2;0:3;");
        assert_eq!(
            combined::<Modes>(std::slice::from_ref(&numbers)),
            "000:2;001:1;002:1;005:1;560:1;750:1;775:1;"
        );
        let ages = |reference| combined::<Ages>(&[numbers.clone(), same(reference, rows)]);
        assert_eq!(ages(100_000), "100000;86400:1;604800:7;");
        assert_eq!(ages(1), "1;0:4;1:1;60:3;");
        let names = ["a.txt", "b.txt", "c", ".x", "", "d.", "a.txt", "x.y.z"];
        let names: Vec<_> =
            names.iter().map(|name| Some(*name).filter(|name| !name.is_empty())).collect();
        let names = words(&names);
        let kept = |keep| [names.clone(), same(keep, rows), same(1, rows)];
        assert_eq!(
            combined::<Categories>(&kept(1)),
            "6;2:.x:1;5:a.txt:2;5:b.txt:1;1:c:1;2:d.:1;5:x.y.z:1;"
        );
        assert_eq!(combined::<Categories>(&kept(0)), "1;5:a.txt:2;");
        assert_eq!(combined::<Extensions>(&kept(1)), "4;6:no-ext:2;3:txt:3;1:x:1;1:z:1;");
        assert_eq!(combined::<Extensions>(&kept(0)), "2;6:no-ext:2;3:txt:3;");
        assert_eq!(combined::<MostFrequent>(std::slice::from_ref(&names)), "5:a.txt:2;");
        assert_eq!(counted::<MostFrequent>(&[words(&[Some("a"), Some("b")])]).answer(), None);
        assert_eq!(
            counted::<Powers>(&[names, same(2, rows), same(8, rows)]).text(),
            "2;8;1;0;0:1;1:2;2:4;"
        );
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![0.5, -0.5, 2.5, 1e30]));
        assert_eq!(counted::<Powers>(&[floats, same(2, 4), same(8, 4)]).text(), "2;8;1;1;1:1;");
    }

    #[test]
    fn nothing_has_a_text_too() {
        assert_eq!(Powers::default().text(), "0;0;0;0;");
        assert_eq!(Modes::default().text(), "");
        assert_eq!(Ages::default().text(), "0;");
        assert_eq!(Categories::default().answer().as_deref(), Some("0;"));
        assert_eq!(MostFrequent::default().answer(), None);
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        let mut powers = Powers::default();
        powers.add_text("2;8;1;0;0:1;").unwrap();
        for text in [
            "3;8;0;0;",
            "2;9;0;0;",
            "1;8;0;0;",
            "2;8;0;0;8:1;",
            "2;8;0",
            "2;999999999999;0;0;",
            "x",
            "2;8;0;0;1",
        ] {
            assert!(powers.add_text(text).is_err(), "{text}");
        }
        assert!(Modes::default().add_text("1000:1;").is_err());
        assert!(Ages::default().add_text("5;61:1;").is_err());
        let mut ages = Ages::default();
        ages.add_text("0;").unwrap();
        ages.add_text("100;60:1;").unwrap();
        assert!(ages.add_text("101;60:1;").is_err());
        for text in ["1;", "1;5:ab:1;", "1;1:ü:1;", "1;1:a:1;x", "-1;", "99999999999999999999;"] {
            assert!(Categories::default().add_text(text).is_err(), "{text}");
        }
    }

    #[test]
    fn categories_may_contain_separators() {
        let names = words(&[Some("a:b;"), Some("!"), Some("ü")]);
        assert_eq!(
            combined::<Categories>(&[names, same(1, 3), same(0, 3)]),
            "3;1:!:1;4:a:b;:1;2:ü:1;"
        );
    }
}
