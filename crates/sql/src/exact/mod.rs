//! Integer arithmetic that never wraps: an answer is right, or it is an error.
//!
//! | expression | here |
//! | --- | --- |
//! | `a + b`, `a - b`, `a * b`, `a << b`, `a >> b` of at most 64 bits | `BIGINT`, or an error |
//! | these operators on unsigned columns of 32 bits | signed: `depth - nlink` can be negative |
//! | `a + b`, ... where either has unsigned 64 bits, is a sum, or is of sizes | up to 38 digits |
//! | `sum(x)` of whole numbers | up to 38 digits: no user's huge file spoils another's answer |
//! | `sum(x)`, `avg(x)` of durations | summed up in 128 bits |
//! | `a / b`, `a // b` | whole, as in PostgreSQL; of sums too |
//!
//! The engine's own operators and aggregates wrap, as its optimizer does where operands are
//! literals. So the planner never makes those of whole numbers: [`operators`] replaces operators,
//! [`sum`] and [`average`] replace aggregates by name.

mod accumulators;
mod average;
mod operators;
mod sum;

use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::prelude::SessionContext;
use std::sync::Arc;

/// The type of sums of whole numbers: 38 digits.
pub(super) const LARGE: DataType = DataType::Decimal128(38, 0);

/// Replaces the engine's arithmetic of whole numbers.
pub(super) fn register(context: &mut SessionContext) -> Result<()> {
    SessionContext::register_udaf(context, sum::function());
    SessionContext::register_udaf(context, average::function());
    context.register_expr_planner(Arc::new(operators::Planner))
}
