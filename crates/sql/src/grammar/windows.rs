//! Windows that a statement defines by name, put where they are used: the planner looks for them
//! in columns alone, and not at all for those that windows are made of.

use super::Checked;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, NamedWindowDefinition, NamedWindowExpr, Select, VisitMut, WindowSpec, WindowType,
    visit_expressions_mut,
};
use std::ops::ControlFlow;

/// Puts the windows of a SELECT where its columns and `QUALIFY` use them.
pub(super) fn resolve(select: &mut Select) -> Checked {
    let windows = std::mem::take(&mut select.named_window);
    for (at, window) in windows.iter().enumerate() {
        if windows[..at].iter().any(|other| is_same(&other.0, &window.0)) {
            return Err(format!("two windows have the name {}", window.0));
        }
        complete(named(&windows, &window.0, windows.len())?, &windows, windows.len())?;
    }
    resolve_in(&windows, &mut select.projection)?;
    resolve_in(&windows, &mut select.qualify)?;
    resolve_in(&windows, &mut select.distinct)
}

/// Puts windows where expressions use them.
pub(super) fn resolve_in(
    windows: &[NamedWindowDefinition],
    expressions: &mut impl VisitMut,
) -> Checked {
    let resolved = visit_expressions_mut(expressions, |expression| {
        let Expr::Function(function) = expression else { return ControlFlow::Continue(()) };
        let spec = match &function.over {
            Some(WindowType::NamedWindow(name)) if find(windows, name).is_some() => {
                named(windows, name, windows.len())
            }
            Some(WindowType::WindowSpec(spec)) if spec.window_name.is_some() => Ok(spec.clone()),
            _ => return ControlFlow::Continue(()),
        };
        match spec.and_then(|spec| complete(spec, windows, windows.len())) {
            Ok(spec) => {
                function.over = Some(WindowType::WindowSpec(spec));
                ControlFlow::Continue(())
            }
            Err(said) => ControlFlow::Break(said),
        }
    });
    match resolved {
        ControlFlow::Break(said) => Err(said),
        ControlFlow::Continue(()) => Ok(()),
    }
}

fn is_same(a: &Ident, b: &Ident) -> bool {
    let normal = |name: &Ident| match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    };
    normal(a) == normal(b)
}

fn find<'a>(windows: &'a [NamedWindowDefinition], name: &Ident) -> Option<&'a NamedWindowExpr> {
    windows.iter().find(|window| is_same(&window.0, name)).map(|window| &window.1)
}

/// Returns a window by its name, which can be another name for one, through so many.
fn named(windows: &[NamedWindowDefinition], name: &Ident, left: usize) -> Checked<WindowSpec> {
    match find(windows, name) {
        Some(NamedWindowExpr::WindowSpec(spec)) => Ok(spec.clone()),
        Some(NamedWindowExpr::NamedWindow(other)) if left > 0 => named(windows, other, left - 1),
        _ => Err(format!("no window '{name}': WINDOW {name} AS (...) behind FROM defines one")),
    }
}

/// Adds to a window the one that it is made of.
fn complete(
    mut spec: WindowSpec,
    windows: &[NamedWindowDefinition],
    left: usize,
) -> Checked<WindowSpec> {
    let Some(name) = spec.window_name.take() else { return Ok(spec) };
    if left == 0 {
        return Err(format!("the window {name} is based on itself"));
    }
    let base = complete(named(windows, &name, left)?, windows, left - 1)?;
    if !spec.partition_by.is_empty() || base.window_frame.is_some() {
        return Err(format!("a window based on {name} can only add ORDER BY and a frame"));
    }
    if !base.order_by.is_empty() && !spec.order_by.is_empty() {
        return Err(format!("the window {name} has an ORDER BY already"));
    }
    spec.partition_by = base.partition_by;
    if spec.order_by.is_empty() {
        spec.order_by = base.order_by;
    }
    Ok(spec)
}
