//! GUFI's aggregates: histograms and standard deviations.

use super::histograms::{Ages, Categories, Extensions, Histogram, Modes, MostFrequent, Powers};
use super::values::{numbers, texts};
use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, Signature, SimpleAggregateUDF, TypeSignature, Volatility,
};
use std::sync::Arc;

type New = fn() -> Box<dyn Accumulator>;

/// Returns all aggregates.
pub(super) fn all() -> Vec<AggregateUDF> {
    let text = |name, arguments, new| aggregate(name, arguments, DataType::Utf8, 1, new);
    let real = |name, new| aggregate(name, 1, DataType::Float64, 3, new);
    vec![
        text("log_hist", 3, counting::<Powers>()),
        text("log_hist_combine", 1, combining::<Powers>()),
        text("mode_hist", 1, counting::<Modes>()),
        text("mode_hist_combine", 1, combining::<Modes>()),
        text("time_hist", 2, counting::<Ages>()),
        text("time_hist_combine", 1, combining::<Ages>()),
        text("category_hist", 3, counting::<Categories>()),
        text("category_hist_combine", 2, combining::<Categories>()),
        text("extension_hist", 3, counting::<Extensions>()),
        text("extension_hist_combine", 2, combining::<Extensions>()),
        text("mode_count", 1, counting::<MostFrequent>()),
        text("mode_count_hist", 1, counting::<MostFrequent>()),
        real("stdevs", || Box::new(Deviation { sample: true, ..Deviation::default() })),
        real("stdevp", || Box::new(Deviation::default())),
    ]
}

/// Makes an aggregate whose state takes so many columns of the type of the answer.
fn aggregate(
    name: &str,
    arguments: usize,
    returns: DataType,
    states: usize,
    new: New,
) -> AggregateUDF {
    let mut kinds = vec![TypeSignature::Any(arguments)];
    // Only some versions of GUFI take whether categories are to be sorted.
    if name.starts_with("category_hist") || name.starts_with("extension_hist") {
        kinds.insert(0, TypeSignature::Any(arguments - 1));
    }
    let signature = Signature::one_of(kinds, Volatility::Immutable);
    let state = |at| Arc::new(Field::new(format!("{name}[{at}]"), returns.clone(), true));
    let states = (0..states).map(state).collect();
    let new = Arc::new(move |_: AccumulatorArgs<'_>| Ok(new()));
    SimpleAggregateUDF::new_with_signature(name, signature, returns, new, states).into()
}

/// Counts values, or adds up histograms.
#[derive(Debug)]
struct Counter<H> {
    histogram: H,
    of_texts: bool,
}

fn counting<H: Histogram>() -> New {
    || Box::new(Counter { histogram: H::default(), of_texts: false })
}

fn combining<H: Histogram>() -> New {
    || Box::new(Counter { histogram: H::default(), of_texts: true })
}

impl<H: Histogram> Counter<H> {
    fn add_texts(&mut self, values: &ArrayRef) -> Result<()> {
        for text in texts(values)?.iter().flatten() {
            self.histogram.add_text(text)?;
        }
        Ok(())
    }
}

impl<H: Histogram> Accumulator for Counter<H> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        match self.of_texts {
            true => self.add_texts(&values[0]),
            false => Ok(self.histogram.add(values)?),
        }
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Utf8(self.histogram.answer()))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.histogram.heap_bytes()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Utf8(Some(self.histogram.text()))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.add_texts(&states[0])
    }
}

/// Standard deviation of a sample or of all, by Welford's method; null of fewer than two values.
/// Null counts as 0.
#[derive(Debug, Default)]
struct Deviation {
    sample: bool,
    count: f64,
    mean: f64,
    /// Sum of the squares of the distances from the mean.
    squares: f64,
}

impl Deviation {
    fn add(&mut self, count: f64, mean: f64, squares: f64) {
        let total = self.count + count;
        if count == 0.0 {
            return;
        }
        let distance = mean - self.mean;
        self.mean += distance * count / total;
        self.squares += squares + distance * distance * self.count * count / total;
        self.count = total;
    }
}

impl Accumulator for Deviation {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        numbers(&values[0])?.iter().for_each(|value| self.add(1.0, value.unwrap_or(0.0), 0.0));
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let divisor = if self.sample { self.count - 1.0 } else { self.count };
        let deviation = (self.count >= 2.0).then(|| (self.squares / divisor).sqrt());
        Ok(ScalarValue::Float64(deviation))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok([self.count, self.mean, self.squares]
            .map(|part| ScalarValue::Float64(Some(part)))
            .to_vec())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [counts, means, squares] =
            [0, 1, 2].map(|at| states[at].as_primitive::<Float64Type>().values());
        for at in 0..counts.len() {
            self.add(counts[at], means[at], squares[at]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Float64Array;

    #[test]
    fn deviations_are_the_same_in_parts() {
        // gufi_sqlite3 gives 24700.4262903317 and 23105.1331214212.
        let values = [1.0, 5.0, 1000.0, -3.0, 0.0, 0.0, 70_000.0, 2.5];
        for first in 0..=values.len() {
            for (sample, expected) in [(true, 24_700.426_290_331_7), (false, 23_105.133_121_421_2)]
            {
                let mut sum = Deviation { sample, ..Deviation::default() };
                for part in [&values[..first], &values[first..]] {
                    let mut deviation = Deviation { sample, ..Deviation::default() };
                    deviation.update_batch(&[Arc::new(Float64Array::from(part.to_vec()))]).unwrap();
                    let state = deviation.state().unwrap();
                    let state: Vec<ArrayRef> =
                        state.iter().map(|part| part.to_array().unwrap()).collect();
                    sum.merge_batch(&state).unwrap();
                }
                let ScalarValue::Float64(Some(value)) = sum.evaluate().unwrap() else {
                    panic!("no value")
                };
                assert!((value - expected).abs() < 1e-6, "{value} {expected}");
            }
        }
        assert_eq!(Deviation::default().evaluate().unwrap(), ScalarValue::Float64(None));
    }
}
