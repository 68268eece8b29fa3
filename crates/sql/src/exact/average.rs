//! `avg`, of durations in 128 bits, and of sums as of other whole numbers.

use super::LARGE;
use super::accumulators::{Answer, ExactSum, ExactSums, state_fields};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::average::Avg as Engine;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
    Volatility,
};

/// Returns the function.
pub(super) fn function() -> AggregateUDF {
    let signature = Signature::user_defined(Volatility::Immutable);
    AggregateUDF::new_from_impl(Average { engine: Engine::new(), signature })
}

/// The engine's own for all but durations.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Average {
    engine: Engine,
    signature: Signature,
}

fn is_duration(fields: &[FieldRef]) -> bool {
    matches!(fields[0].data_type(), DataType::Duration(_))
}

impl AggregateUDFImpl for Average {
    fn name(&self) -> &str {
        "avg"
    }

    fn aliases(&self) -> &[String] {
        self.engine.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let of = match arguments {
            [of @ (DataType::Duration(_) | DataType::Decimal128(..))] if *of != LARGE => of.clone(),
            [DataType::Null] => DataType::Float64,
            [of] if of.is_numeric() => DataType::Float64,
            _ => {
                let types: Vec<String> = arguments.iter().map(DataType::to_string).collect();
                return Err(DataFusionError::Plan(format!(
                    "No function matches the given name and argument types 'avg({})'.\n\t\
                     Candidate functions:\n\tavg(Float64)\n\tavg(Duration)\n",
                    types.join(", ")
                )));
            }
        };
        Ok(vec![of])
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.engine.return_type(arguments)
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if !is_duration(arguments.expr_fields) || arguments.is_distinct {
            return self.engine.accumulator(arguments);
        }
        let values = arguments.expr_fields[0].data_type();
        Ok(Box::new(ExactSum::new(Answer::Mean, values, arguments.return_type())))
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        match is_duration(arguments.input_fields) && !arguments.is_distinct {
            true => Ok(state_fields(arguments.name, arguments.input_fields[0].data_type())),
            false => self.engine.state_fields(arguments),
        }
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        self.engine.groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        if !is_duration(arguments.expr_fields) {
            return self.engine.create_groups_accumulator(arguments);
        }
        let values = arguments.expr_fields[0].data_type();
        Ok(Box::new(ExactSums::new(Answer::Mean, values, arguments.return_type())))
    }

    fn create_sliding_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        match is_duration(arguments.expr_fields) {
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
