//! Functions that SQL over metadata asks for.

use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
use arrow::datatypes::{DataType, Int64Type, UInt32Type};
use canopy_model::{base_name, extension};
use canopy_text::{group_or_number, human_size, user_or_number};
use datafusion::common::cast::as_string_array;
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{Volatility, create_udf};
use datafusion::prelude::SessionContext;
use std::sync::Arc;

/// Makes the functions known:
///
/// | function | of | gives |
/// | --- | --- | --- |
/// | `user_name(uid)`, `group_name(gid)` | an id | the name, or the id where there is none |
/// | `human_size(bytes)` | a number | text such as `4.0K` |
/// | `extension(name)` | a name or path | what follows its last dot, or null |
/// | `depth(path)` | a path | how many components it has |
pub(super) fn register(context: &SessionContext) {
    let add = |name: &str, from, to, function: fn(&ArrayRef) -> Result<ArrayRef>| {
        let function = make_scalar_function(move |arrays| function(&arrays[0]), Vec::new());
        let function = Arc::new(function);
        context.register_udf(create_udf(name, vec![from], to, Volatility::Stable, function));
    };
    add("user_name", DataType::UInt32, DataType::Utf8, |ids| named(ids, user_or_number));
    add("group_name", DataType::UInt32, DataType::Utf8, |ids| named(ids, group_or_number));
    add("human_size", DataType::Int64, DataType::Utf8, |sizes| {
        let sizes = sizes.as_primitive::<Int64Type>().iter();
        Ok(Arc::new(sizes.map(|size| size.map(human_size)).collect::<StringArray>()))
    });
    add("extension", DataType::Utf8, DataType::Utf8, |names| {
        let names = as_string_array(names)?.iter();
        Ok(Arc::new(names.map(|name| extension(base_name(name?))).collect::<StringArray>()))
    });
    add("depth", DataType::Utf8, DataType::Int64, |paths| {
        let depth = |path: &str| path.split('/').filter(|part| !part.is_empty()).count() as i64;
        let paths = as_string_array(paths)?.iter();
        Ok(Arc::new(paths.map(|path| path.map(depth)).collect::<Int64Array>()))
    });
}

fn named(ids: &ArrayRef, name: fn(u32) -> String) -> Result<ArrayRef> {
    let ids = ids.as_primitive::<UInt32Type>().iter();
    Ok(Arc::new(ids.map(|id| id.map(name)).collect::<StringArray>()))
}
