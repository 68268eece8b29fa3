//! GUFI's aggregates: histograms and standard deviations.

use super::histograms::{Ages, Categories, Extensions, Histogram, Modes, MostFrequent, Powers};
use super::values::{numbers, texts};
use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, TypeSignature, Volatility,
};
use std::sync::Arc;

type New = fn() -> Box<dyn Accumulator>;

/// Returns all aggregates.
pub(super) fn all() -> Vec<AggregateUDF> {
    let text = |name, arguments, new| Aggregate::new(name, arguments, DataType::Utf8, 1, new);
    let real = |name, new| Aggregate::new(name, 1, DataType::Float64, 3, new);
    [
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
    .into_iter()
    .map(AggregateUDF::from)
    .collect()
}

#[derive(Debug)]
struct Aggregate {
    name: &'static str,
    signature: Signature,
    returns: DataType,
    /// How many columns of the type of the answer the state takes.
    states: usize,
    new: New,
}

impl Aggregate {
    fn new(
        name: &'static str,
        arguments: usize,
        returns: DataType,
        states: usize,
        new: New,
    ) -> Self {
        // Only some versions of GUFI take whether categories are to be sorted.
        let kind = match name {
            "category_hist" | "extension_hist" => {
                vec![TypeSignature::Any(2), TypeSignature::Any(3)]
            }
            "category_hist_combine" | "extension_hist_combine" => {
                vec![TypeSignature::Any(1), TypeSignature::Any(2)]
            }
            _ => vec![TypeSignature::Any(arguments)],
        };
        let signature = Signature::one_of(kind, Volatility::Immutable);
        Aggregate { name, signature, returns, states, new }
    }
}

equal_by_name!(Aggregate);

impl AggregateUDFImpl for Aggregate {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.returns.clone())
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok((self.new)())
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let name = |state| format!("{}[{state}]", arguments.name);
        let field = |state| Arc::new(Field::new(name(state), self.returns.clone(), true));
        Ok((0..self.states).map(field).collect())
    }
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
