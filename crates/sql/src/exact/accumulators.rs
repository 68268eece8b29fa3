//! Sums in 128 bits, for [`sum`](super::sum) and [`average`](super::average).

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, ListArray,
    PrimitiveArray, UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Decimal128Type, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, Field, FieldRef, Int64Type, TimeUnit, UInt64Type,
};
use arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use std::collections::HashMap;
use std::sync::Arc;

/// The result to compute from a sum and the number of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Sum,
    Mean,
}

/// Returns whether values of a type are whole numbers that are summed up here: the types that the
/// engine's own `sum` and `avg` take, but floating point and intervals.
pub(super) fn is_summed(data_type: &DataType) -> bool {
    use DataType::{Decimal128, Duration, Int64, UInt64};
    matches!(data_type, Int64 | UInt64 | Decimal128(..) | Duration(_))
}

/// Returns the type in which sums of values of a type are kept.
pub(super) fn sum_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Decimal128(_, scale) => DataType::Decimal128(38, *scale),
        _ => super::LARGE,
    }
}

/// Returns the columns of states: a sum, and of how many values.
pub(super) fn state_fields(name: &str, values: &DataType) -> Vec<FieldRef> {
    let field =
        |what, data_type| Arc::new(Field::new(format_state_name(name, what), data_type, true));
    vec![field("sum", sum_type(values)), field("count", DataType::UInt64)]
}

/// Returns the column of states of a sum of distinct values: a list of them.
pub(super) fn distinct_state_fields(name: &str, values: &DataType) -> Vec<FieldRef> {
    let item = Field::new_list_field(sum_type(values), true);
    vec![Arc::new(Field::new_list(format_state_name(name, "distinct"), item, true))]
}

/// Calls a function for each value that is there, with its row.
fn each(values: &ArrayRef, call: impl FnMut(usize, i128) -> Result<()>) -> Result<()> {
    match values.data_type() {
        DataType::Int64 => each_of::<Int64Type>(values, call),
        DataType::UInt64 => each_of::<UInt64Type>(values, call),
        DataType::Decimal128(..) => each_of::<Decimal128Type>(values, call),
        DataType::Duration(TimeUnit::Second) => each_of::<DurationSecondType>(values, call),
        DataType::Duration(TimeUnit::Millisecond) => {
            each_of::<DurationMillisecondType>(values, call)
        }
        DataType::Duration(TimeUnit::Microsecond) => {
            each_of::<DurationMicrosecondType>(values, call)
        }
        DataType::Duration(TimeUnit::Nanosecond) => each_of::<DurationNanosecondType>(values, call),
        other => Err(DataFusionError::Internal(format!("there is no exact sum of {other}"))),
    }
}

fn each_of<T: ArrowPrimitiveType>(
    values: &ArrayRef,
    mut call: impl FnMut(usize, i128) -> Result<()>,
) -> Result<()>
where
    T::Native: Into<i128>,
{
    let values: &PrimitiveArray<T> = values.as_primitive();
    let mut numbered = values.values().iter().enumerate();
    match values.nulls() {
        None => numbered.try_for_each(|(row, value)| call(row, (*value).into())),
        Some(nulls) => numbered
            .filter(|(row, _)| nulls.is_valid(*row))
            .try_for_each(|(row, value)| call(row, (*value).into())),
    }
}

/// Returns the sum of all values that are there.
fn total(values: &ArrayRef) -> Result<i128> {
    if let DataType::Int64 = values.data_type() {
        // No array has so many numbers of 64 bits that 128 are too few.
        let numbers = values.as_primitive::<Int64Type>();
        return Ok(match numbers.nulls() {
            None => numbers.values().iter().map(|number| i128::from(*number)).sum(),
            Some(_) => numbers.iter().flatten().map(i128::from).sum(),
        });
    }
    let mut sum = 0;
    each(values, |_, value| {
        sum = added(sum, value)?;
        Ok(())
    })?;
    Ok(sum)
}

/// The greatest number of 38 digits.
const GREATEST: i128 = 10_i128.pow(38) - 1;

fn overflow() -> DataFusionError {
    let said = "a sum has more than 38 digits".to_owned();
    DataFusionError::ArrowError(Box::new(ArrowError::ArithmeticOverflow(said)), None)
}

fn added(sum: i128, value: i128) -> Result<i128> {
    let sum = sum.checked_add(value);
    sum.filter(|sum| sum.unsigned_abs() <= GREATEST.unsigned_abs()).ok_or_else(overflow)
}

/// Makes answers of sums and counts; there is none of nothing.
fn answers(
    answer: Answer,
    data_type: &DataType,
    sums: Vec<i128>,
    counts: &[u64],
) -> Result<ArrayRef> {
    let there = NullBuffer::from_iter(counts.iter().map(|count| *count > 0));
    let mean = |(sum, count): (i128, &u64)| match answer {
        Answer::Sum => sum,
        Answer::Mean => sum / i128::from((*count).max(1)),
    };
    let values: Vec<i128> = sums.into_iter().zip(counts).map(mean).collect();
    if let DataType::Decimal128(..) = data_type {
        let values = Decimal128Array::new(values.into(), Some(there));
        return Ok(Arc::new(values.with_data_type(data_type.clone())));
    }
    let narrow = |value: i128| {
        i64::try_from(value).map_err(|_| {
            let said = "a sum of durations is longer than 292 years".to_owned();
            ArrowError::ArithmeticOverflow(said)
        })
    };
    let values = values.into_iter().map(narrow).collect::<Result<Vec<i64>, ArrowError>>()?;
    let values = PrimitiveArray::<Int64Type>::new(values.into(), Some(there));
    Ok(arrow::compute::cast(&values, data_type)?)
}

/// The sum of values, of windows too.
#[derive(Debug)]
pub(super) struct ExactSum {
    answer: Answer,
    /// The type of the answer.
    data_type: DataType,
    /// The type of states.
    state: DataType,
    sum: i128,
    count: u64,
}

impl ExactSum {
    pub(super) fn new(answer: Answer, values: &DataType, data_type: &DataType) -> Self {
        let (data_type, state) = (data_type.clone(), sum_type(values));
        ExactSum { answer, data_type, state, sum: 0, count: 0 }
    }
}

impl Accumulator for ExactSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.sum = added(self.sum, total(&values[0])?)?;
        self.count += (values[0].len() - values[0].null_count()) as u64;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.sum = added(self.sum, -total(&values[0])?)?;
        self.count -= (values[0].len() - values[0].null_count()) as u64;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let answers = answers(self.answer, &self.data_type, vec![self.sum], &[self.count])?;
        ScalarValue::try_from_array(&answers, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let DataType::Decimal128(precision, scale) = self.state else { return Err(overflow()) };
        let sum = ScalarValue::Decimal128(Some(self.sum), precision, scale);
        Ok(vec![sum, ScalarValue::UInt64(Some(self.count))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.sum = added(self.sum, total(&states[0])?)?;
        let counts = states[1].as_primitive::<UInt64Type>();
        self.count += counts.iter().flatten().sum::<u64>();
        Ok(())
    }
}

/// The sum of distinct values, of windows too.
#[derive(Debug)]
pub(super) struct DistinctSum {
    data_type: DataType,
    state: DataType,
    /// How often each value is there.
    counts: HashMap<i128, u64>,
}

impl DistinctSum {
    pub(super) fn new(values: &DataType, data_type: &DataType) -> Self {
        let (data_type, state) = (data_type.clone(), sum_type(values));
        DistinctSum { data_type, state, counts: HashMap::new() }
    }

    fn add(&mut self, values: &ArrayRef) -> Result<()> {
        each(values, |_, value| {
            *self.counts.entry(value).or_default() += 1;
            Ok(())
        })
    }
}

impl Accumulator for DistinctSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0])
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        each(&values[0], |_, value| {
            if let Some(count) = self.counts.get_mut(&value) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&value);
                }
            }
            Ok(())
        })
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = self.counts.keys().try_fold(0, |sum, value| added(sum, *value))?;
        let count = self.counts.len() as u64;
        let answers = answers(Answer::Sum, &self.data_type, vec![sum], &[count])?;
        ScalarValue::try_from_array(&answers, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.counts.capacity() * size_of::<(i128, u64)>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = Decimal128Array::from_iter_values(self.counts.keys().copied());
        let values: ArrayRef = Arc::new(values.with_data_type(self.state.clone()));
        Ok(vec![SingleRowListArrayBuilder::new(values).build_list_scalar()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let lists: &ListArray = states[0].as_list();
        lists.iter().flatten().try_for_each(|values| self.add(&values))
    }
}

/// Sums of groups.
#[derive(Debug)]
pub(super) struct ExactSums {
    answer: Answer,
    data_type: DataType,
    state: DataType,
    sums: Vec<i128>,
    counts: Vec<u64>,
}

impl ExactSums {
    pub(super) fn new(answer: Answer, values: &DataType, data_type: &DataType) -> Self {
        let (data_type, state) = (data_type.clone(), sum_type(values));
        ExactSums { answer, data_type, state, sums: Vec::new(), counts: Vec::new() }
    }

    fn states(&self, sums: Vec<i128>, counts: Vec<u64>) -> Vec<ArrayRef> {
        let sums = Decimal128Array::from(sums).with_data_type(self.state.clone());
        vec![Arc::new(sums), Arc::new(UInt64Array::from(counts))]
    }
}

/// Returns whether a filter lets a row pass.
fn passes(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

impl GroupsAccumulator for ExactSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.sums.resize(total, 0);
        self.counts.resize(total, 0);
        let (sums, counts) = (&mut self.sums, &mut self.counts);
        each(&values[0], |row, value| {
            if passes(filter, row) {
                let group = groups[row];
                sums[group] = added(sums[group], value)?;
                counts[group] += 1;
            }
            Ok(())
        })
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let (sums, counts) = (emit.take_needed(&mut self.sums), emit.take_needed(&mut self.counts));
        answers(self.answer, &self.data_type, sums, &counts)
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, counts) = (emit.take_needed(&mut self.sums), emit.take_needed(&mut self.counts));
        Ok(self.states(sums, counts))
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.sums.resize(total, 0);
        self.counts.resize(total, 0);
        let merged = states[1].as_primitive::<UInt64Type>();
        let (sums, counts) = (&mut self.sums, &mut self.counts);
        each(&states[0], |row, value| {
            let group = groups[row];
            sums[group] = added(sums[group], value)?;
            counts[group] += merged.value(row);
            Ok(())
        })
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let rows = values[0].len();
        let (mut sums, mut counts) = (vec![0; rows], vec![0; rows]);
        each(&values[0], |row, value| {
            if passes(filter, row) {
                (sums[row], counts[row]) = (value, 1);
            }
            Ok(())
        })?;
        Ok(self.states(sums, counts))
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.counts.capacity() * size_of::<u64>()
    }
}
