//! Functions that SQL over metadata asks for.

use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Decimal128Type, Float64Type};
use canopy_model::{base_name, extension};
use canopy_text::{group_or_number, human_size, user_or_number};
use datafusion::common::cast::{as_primitive_array, as_string_array};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::SessionContext;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Makes the functions known:
///
/// | function | of | gives |
/// | --- | --- | --- |
/// | `user_name(uid)`, `group_name(gid)` | an id | the name, or the id where there is none |
/// | `human_size(bytes)` | any number | text such as `4.0K` |
/// | `extension(name)` | a name or path | the text behind its last dot, or null |
/// | `depth(path)` | a path | how many components it has |
pub(super) fn register(context: &SessionContext) {
    let add = |name, takes, returns, call: Call| {
        let signature = Signature::user_defined(Volatility::Stable);
        let function = Function { name, takes, returns, signature, call };
        context.register_udf(ScalarUDF::new_from_impl(function));
    };
    add("user_name", Takes::Number, DataType::Utf8, |ids| named(ids, user_or_number));
    add("group_name", Takes::Number, DataType::Utf8, |ids| named(ids, group_or_number));
    add("human_size", Takes::Number, DataType::Utf8, human_sizes);
    add("extension", Takes::Text, DataType::Utf8, |names| {
        let names = as_string_array(names)?.iter();
        Ok(Arc::new(names.map(|name| extension(base_name(name?))).collect::<StringArray>()))
    });
    add("depth", Takes::Text, DataType::Int64, |paths| {
        let depth = |path: &str| path.split('/').filter(|part| !part.is_empty()).count() as i64;
        let paths = as_string_array(paths)?.iter();
        Ok(Arc::new(paths.map(|path| path.map(depth)).collect::<Int64Array>()))
    });
}

type Call = fn(&ArrayRef) -> Result<ArrayRef>;

/// The one argument of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// A number of any type, as it is.
    Number,
    Text,
}

/// A function of one argument, identified by its name.
#[derive(Debug)]
struct Function {
    name: &'static str,
    takes: Takes,
    returns: DataType,
    signature: Signature,
    call: Call,
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        use DataType::{LargeUtf8, Null, Utf8, Utf8View};
        match (self.takes, arguments) {
            (Takes::Number, [number]) if number.is_numeric() => Ok(vec![number.clone()]),
            (Takes::Number, [Null]) => Ok(vec![DataType::Int64]),
            (Takes::Text, [Utf8 | LargeUtf8 | Utf8View | Null]) => Ok(vec![Utf8]),
            _ => {
                let types: Vec<String> = arguments.iter().map(DataType::to_string).collect();
                let takes = if self.takes == Takes::Number { "Int64" } else { "Utf8" };
                Err(DataFusionError::Plan(format!(
                    "No function matches the given name and argument types '{0}({1})'.\n\t\
                     Candidate functions:\n\t{0}({takes})\n",
                    self.name,
                    types.join(", ")
                )))
            }
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.returns.clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let call = self.call;
        make_scalar_function(move |arrays: &[ArrayRef]| call(&arrays[0]), Vec::new())(
            &arguments.args,
        )
    }
}

/// Casts values; one that does not fit is an error.
fn cast(values: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    Ok(cast_with_options(values, to, &options)?)
}

/// Returns values as whole numbers, those with a fraction away from 0.
fn whole(values: &ArrayRef) -> Result<Vec<Option<i128>>> {
    if values.data_type().is_floating() {
        let values = cast(values, &DataType::Float64)?;
        let values = as_primitive_array::<Float64Type>(&values)?.iter();
        let away = |value: f64| if value < 0.0 { value.floor() } else { value.ceil() };
        return Ok(values.map(|value| value.map(|value| away(value) as i128)).collect());
    }
    let values = cast(values, &DataType::Decimal128(38, 0))?;
    Ok(as_primitive_array::<Decimal128Type>(&values)?.iter().collect())
}

/// Names ids; a number that cannot be an id stays a number.
fn named(ids: &ArrayRef, name: fn(u32) -> String) -> Result<ArrayRef> {
    let text = |id: i128| u32::try_from(id).map_or_else(|_| id.to_string(), name);
    let ids = whole(ids)?.into_iter();
    Ok(Arc::new(ids.map(|id| id.map(text)).collect::<StringArray>()))
}

/// Shows numbers of bytes, rounded up.
fn human_sizes(sizes: &ArrayRef) -> Result<ArrayRef> {
    let sizes = whole(sizes)?.into_iter();
    Ok(Arc::new(sizes.map(|size| size.map(human_size)).collect::<StringArray>()))
}
