//! Operators of whole numbers.

use super::LARGE;
use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, Datum, PrimitiveArray};
use arrow::compute::kernels::arity::try_binary;
use arrow::compute::kernels::numeric;
use arrow::datatypes::{DataType, Decimal128Type, Int64Type, UInt64Type};
use arrow::error::ArrowError;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, cast,
};
use datafusion::physical_expr_common::datum::apply;
use datafusion::sql::sqlparser::ast::BinaryOperator;
use std::sync::{Arc, LazyLock};

/// A type that holds all values of an unsigned column of 64 bits.
const OF_UNSIGNED: DataType = DataType::Decimal128(20, 0);

/// Ends of names of columns with sizes: `size`, `dir_size`, `maxsize`, `blocks`.
const SIZES: [&str; 2] = ["size", "blocks"];

/// Plans operators of whole numbers as functions that do not wrap.
#[derive(Debug)]
pub(super) struct Planner;

/// How many digits values of a type can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    /// All values fit into a signed number of 64 bits.
    Small,
    /// They do not.
    Large,
}

impl Width {
    fn of(data_type: &DataType) -> Option<Self> {
        use DataType::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
        match data_type {
            Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 => Some(Width::Small),
            UInt64 => Some(Width::Large),
            large if *large == LARGE || *large == OF_UNSIGNED => Some(Width::Large),
            _ => None,
        }
    }
}

impl ExprPlanner for Planner {
    fn plan_binary_op(
        &self,
        expression: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let Some(operation) = Operation::of(&expression.op) else {
            return Ok(PlannerResult::Original(expression));
        };
        let types = type_of(&expression.left, schema).zip(type_of(&expression.right, schema));
        let Some((left, right)) = types else { return Ok(PlannerResult::Original(expression)) };
        let widths = Width::of(&left).zip(Width::of(&right));
        let Some((left_width, right_width)) = widths else {
            return Ok(PlannerResult::Original(expression));
        };
        let RawBinaryExpr { left: l, right: r, .. } = expression;
        let are_small = (left_width, right_width) == (Width::Small, Width::Small);
        let is_sum =
            matches!(operation, Operation::Add | Operation::Subtract | Operation::Multiply);
        Ok(PlannerResult::Planned(match operation {
            Operation::Divide if are_small => binary(l, Operator::Divide, r),
            // The engine checks what it computes of decimals.
            _ if is_sum && !are_small => {
                binary(as_decimal(l, &left), operation.operator(), as_decimal(r, &right))
            }
            _ if is_sum && (is_of_sizes(&l, &left) || is_of_sizes(&r, &right)) => {
                binary(cast(l, LARGE), operation.operator(), cast(r, LARGE))
            }
            _ => call(operation, l, r),
        }))
    }
}

/// Returns whether an operand of 64 bits is computed of sizes: anybody may have a file of nearly
/// 2^63 bytes, and computations of others must not fail for that.
fn is_of_sizes(operand: &Expr, data_type: &DataType) -> bool {
    let is_size = |expr: &Expr| {
        let Expr::Column(column) = expr else { return false };
        SIZES.iter().any(|end| column.name.ends_with(end))
    };
    // Arithmetic on sizes already has a wider type.
    let is_checked = |expr: &Expr| matches!(expr, Expr::ScalarFunction(inner) if inner.func.inner().is::<Checked>());
    *data_type == DataType::Int64
        && !is_checked(operand)
        && operand.exists(|expr| Ok(is_size(expr))).unwrap_or(false)
}

/// Returns the type of an operand, in constant time for long chains such as `a + b + c`.
fn type_of(operand: &Expr, schema: &DFSchema) -> Option<DataType> {
    match operand {
        Expr::ScalarFunction(inner) if inner.func.inner().is::<Checked>() => {
            let checked = inner.func.inner().downcast_ref::<Checked>()?;
            match checked.operation {
                Operation::ShiftLeft | Operation::ShiftRight => operand.get_type(schema).ok(),
                operation => Some(operation.result()),
            }
        }
        operand => operand.get_type(schema).ok(),
    }
}

fn binary(left: Expr, operator: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
}

fn as_decimal(value: Expr, data_type: &DataType) -> Expr {
    if *data_type == DataType::UInt64 { cast(value, OF_UNSIGNED) } else { value }
}

fn call(operation: Operation, left: Expr, right: Expr) -> Expr {
    let function = FUNCTIONS[operation as usize].clone();
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![left, right]))
}

static FUNCTIONS: LazyLock<[Arc<ScalarUDF>; 6]> = LazyLock::new(|| {
    Operation::ALL.map(|operation| Arc::new(ScalarUDF::new_from_impl(Checked::new(operation))))
});

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
    ShiftLeft,
    ShiftRight,
}

impl Operation {
    const ALL: [Operation; 6] = [
        Operation::Add,
        Operation::Subtract,
        Operation::Multiply,
        Operation::Divide,
        Operation::ShiftLeft,
        Operation::ShiftRight,
    ];

    fn of(operator: &BinaryOperator) -> Option<Self> {
        Some(match operator {
            BinaryOperator::Plus => Operation::Add,
            BinaryOperator::Minus => Operation::Subtract,
            BinaryOperator::Multiply => Operation::Multiply,
            BinaryOperator::Divide
            | BinaryOperator::DuckIntegerDivide
            | BinaryOperator::MyIntegerDivide => Operation::Divide,
            BinaryOperator::PGBitwiseShiftLeft => Operation::ShiftLeft,
            BinaryOperator::PGBitwiseShiftRight => Operation::ShiftRight,
            _ => return None,
        })
    }

    fn operator(self) -> Operator {
        match self {
            Operation::Add => Operator::Plus,
            Operation::Subtract => Operator::Minus,
            Operation::Multiply => Operator::Multiply,
            Operation::Divide => Operator::Divide,
            Operation::ShiftLeft => Operator::BitwiseShiftLeft,
            Operation::ShiftRight => Operator::BitwiseShiftRight,
        }
    }

    /// Returns the type of the result, which shifts take from their left operand.
    fn result(self) -> DataType {
        if self == Operation::Divide { LARGE } else { DataType::Int64 }
    }

    fn compute(self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef, ArrowError> {
        match self {
            Operation::Add => numeric::add(left, right),
            Operation::Subtract => numeric::sub(left, right),
            Operation::Multiply => numeric::mul(left, right),
            Operation::Divide => {
                let quotients = pairs::<Decimal128Type, Decimal128Type>(left, right, |l, r| {
                    if r == 0 { Err(ArrowError::DivideByZero) } else { Ok(l / r) }
                })?;
                Ok(Arc::new(quotients.with_data_type(LARGE)))
            }
            Operation::ShiftLeft | Operation::ShiftRight => match left.get().0.data_type() {
                DataType::UInt64 => Ok(Arc::new(self.shifted::<UInt64Type>(left, right)?)),
                _ => Ok(Arc::new(self.shifted::<Int64Type>(left, right)?)),
            },
        }
    }

    fn shifted<T: ArrowPrimitiveType>(
        self,
        left: &dyn Datum,
        right: &dyn Datum,
    ) -> Result<PrimitiveArray<T>, ArrowError>
    where
        T::Native: Copy + Into<i128> + TryFrom<i128>,
    {
        let symbol = self.operator();
        pairs::<T, Int64Type>(left, right, |value, by| {
            let value: i128 = value.into();
            let result = match u32::try_from(by) {
                Ok(by @ 0..=63) if self == Operation::ShiftLeft => Some(value << by),
                Ok(by @ 0..=63) => Some(value >> by),
                _ => None,
            };
            result.and_then(|result| T::Native::try_from(result).ok()).ok_or_else(|| {
                ArrowError::ArithmeticOverflow(format!(
                    "Overflow happened on: {value} {symbol} {by}"
                ))
            })
        })
    }
}

/// Computes a value of each pair, either side of which may be one value for all.
fn pairs<T: ArrowPrimitiveType, U: ArrowPrimitiveType>(
    left: &dyn Datum,
    right: &dyn Datum,
    compute: impl Fn(T::Native, U::Native) -> Result<T::Native, ArrowError>,
) -> Result<PrimitiveArray<T>, ArrowError> {
    let ((left, one_left), (right, one_right)) = (left.get(), right.get());
    let (left, right) = (left.as_primitive::<T>(), right.as_primitive::<U>());
    match (one_left, one_right) {
        (false, true) if right.is_valid(0) => {
            let right = right.value(0);
            left.try_unary(|left| compute(left, right))
        }
        (true, false) if left.is_valid(0) => {
            let left = left.value(0);
            right.try_unary(|right| compute(left, right))
        }
        (false, true) => Ok(PrimitiveArray::new_null(left.len())),
        (true, false) => Ok(PrimitiveArray::new_null(right.len())),
        _ => try_binary(left, right, compute),
    }
}

/// An operator that fails where the engine's would wrap.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    operation: Operation,
    name: String,
    signature: Signature,
}

impl Checked {
    fn new(operation: Operation) -> Self {
        let signature = Signature::user_defined(Volatility::Immutable);
        Checked { operation, name: operation.operator().to_string(), signature }
    }
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of a column without one, as the engine names those of its operators: the
    /// optimizer replaces operands by columns of their names.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let operands = arguments.iter().map(|argument| argument.schema_name().to_string());
        Ok(operands.collect::<Vec<_>>().join(&format!(" {} ", self.name)))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let left = match self.operation {
            Operation::ShiftLeft | Operation::ShiftRight if arguments[0] == DataType::UInt64 => {
                DataType::UInt64
            }
            operation => operation.result(),
        };
        let right = if left == LARGE { LARGE } else { DataType::Int64 };
        Ok(vec![left, right])
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match self.operation {
            Operation::ShiftLeft | Operation::ShiftRight => Ok(arguments[0].clone()),
            operation => Ok(operation.result()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        apply(&arguments.args[0], &arguments.args[1], |left, right| {
            self.operation.compute(left, right)
        })
    }
}
