//! `sum`, of whole numbers in 38 digits.

use super::accumulators::{
    Answer, DistinctSum, ExactSum, ExactSums, distinct_state_fields, is_summed, state_fields,
    sum_type,
};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result;
use datafusion::functions_aggregate::sum::Sum as Engine;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
};

/// Returns the function.
pub(super) fn function() -> AggregateUDF {
    AggregateUDF::new_from_impl(Sum { engine: Engine::new() })
}

/// The engine's own for floating point and intervals, and here for all else.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Sum {
    engine: Engine,
}

/// Returns the type of the only argument.
fn of(fields: &[FieldRef]) -> &DataType {
    fields[0].data_type()
}

impl AggregateUDFImpl for Sum {
    fn name(&self) -> &str {
        "sum"
    }

    fn signature(&self) -> &Signature {
        self.engine.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match &arguments[0] {
            duration @ DataType::Duration(_) => Ok(duration.clone()),
            number if is_summed(number) => Ok(sum_type(number)),
            _ => self.engine.return_type(arguments),
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let values = of(arguments.expr_fields);
        if !is_summed(values) {
            return self.engine.accumulator(arguments);
        }
        let data_type = arguments.return_type();
        Ok(match arguments.is_distinct {
            true => Box::new(DistinctSum::new(values, data_type)),
            false => Box::new(ExactSum::new(Answer::Sum, values, data_type)),
        })
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let values = of(arguments.input_fields);
        if !is_summed(values) {
            return self.engine.state_fields(arguments);
        }
        Ok(match arguments.is_distinct {
            true => distinct_state_fields(arguments.name, values),
            false => state_fields(arguments.name, values),
        })
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        !arguments.is_distinct
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let values = of(arguments.expr_fields);
        if !is_summed(values) {
            return self.engine.create_groups_accumulator(arguments);
        }
        Ok(Box::new(ExactSums::new(Answer::Sum, values, arguments.return_type())))
    }

    fn create_sliding_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        match is_summed(of(arguments.expr_fields)) {
            true => self.accumulator(arguments),
            false => self.engine.create_sliding_accumulator(arguments),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}
