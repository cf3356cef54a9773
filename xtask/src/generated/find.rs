//! Where a source file can be made wrong, and how.
//!
//! A mutant changes one thing that the compiler does not notice: an operator, the sense of a condition, a constant by one, a
//! statement that is left out, a function that returns at once. What cannot show is left alone: constants and types (they
//! have no moment at which a bug could be switched on), tests, formatting, and bugs that are planted by hand.

use std::ops::Range;

use anyhow::{Context as _, Result};
use proc_macro2::Span;
use quote::ToTokens as _;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

/// A change of a source file.
#[derive(Clone, Debug)]
pub(super) struct Mutant {
    /// The bytes that are replaced, or in front of which something is put.
    pub(super) at: Range<usize>,
    pub(super) line: usize,
    /// The function that it is in, with the type around it.
    pub(super) function: String,
    pub(super) how: How,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// The expression is replaced by this one.
    Replace(String),
    /// The statement is left out.
    LeaveOut,
    /// The function returns this at once.
    Return(String),
}

/// All mutants of a source file.
///
/// # Errors
/// If it is not Rust.
pub(super) fn mutants(text: &str) -> Result<Vec<Mutant>> {
    let file = syn::parse_file(text).context("failed to parse")?;
    let mut finder = Finder {
        text,
        scope: Vec::new(),
        found: Vec::new(),
    };
    finder.visit_file(&file);
    Ok(finder.found)
}

/// By what an operator is replaced.
const OPERATORS: [(&str, &str); 24] = [
    ("+", "-"),
    ("-", "+"),
    ("*", "/"),
    ("/", "*"),
    ("%", "/"),
    ("<<", ">>"),
    (">>", "<<"),
    ("&", "|"),
    ("|", "&"),
    ("^", "|"),
    ("==", "!="),
    ("!=", "=="),
    ("<", "<="),
    ("<=", "<"),
    (">", ">="),
    (">=", ">"),
    ("&&", "||"),
    ("||", "&&"),
    ("+=", "-="),
    ("-=", "+="),
    ("&=", "|="),
    ("|=", "&="),
    ("<<=", ">>="),
    (">>=", "<<="),
];

/// Methods that are easily taken for each other.
const METHODS: [(&str, &str); 12] = [
    ("min", "max"),
    ("max", "min"),
    ("any", "all"),
    ("all", "any"),
    ("is_some", "is_none"),
    ("is_none", "is_some"),
    ("is_some_and", "is_none_or"),
    ("is_none_or", "is_some_and"),
    ("first", "last"),
    ("last", "first"),
    ("wrapping_add", "wrapping_sub"),
    ("wrapping_sub", "wrapping_add"),
];

/// What only prints.
const PRINTING: [&str; 4] = ["Debug", "Display", "Error", "Serialize"];

/// What measures, makes the next step quicker, or says on what grounds bytes are used, and decides nothing.
const ASIDE: [&str; 6] = [
    "stopwatch",
    "prefetch",
    "rely_on",
    "rely_on_words",
    "rely_on_within",
    "validated",
];

/// How the names of functions begin that only fetch ahead.
const AHEAD: &str = "approach_";

/// The ending of names of times. A nanosecond more or less is no fault.
const TIME: &str = "_ns";

/// How a bug that is planted by hand is asked for.
const PLANTED: &str = "is_planted";

struct Finder<'t> {
    text: &'t str,
    /// The modules, types and functions around.
    scope: Vec<String>,
    found: Vec<Mutant>,
}

impl Finder<'_> {
    fn add(&mut self, span: Span, how: How) {
        self.add_at(span.byte_range(), span.start().line, how);
    }

    fn add_at(&mut self, at: Range<usize>, line: usize, how: How) {
        self.found.push(Mutant {
            at,
            line,
            function: self.scope.join("::"),
            how,
        });
    }

    fn source(&self, span: Span) -> &str {
        &self.text[span.byte_range()]
    }

    /// Everything within, under this name.
    fn within(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.scope.push(name);
        visit(self);
        self.scope.pop();
    }

    fn function(&mut self, attributes: &[syn::Attribute], signature: &syn::Signature, body: &syn::Block) {
        let is_ahead = signature.ident.to_string().starts_with(AHEAD) || signature.ident == AHEAD.trim_end_matches('_');
        if signature.constness.is_some() || is_for_tests(attributes) || is_ahead {
            return;
        }
        self.within(signature.ident.to_string(), |finder| {
            if !body.stmts.is_empty() {
                let start = body.brace_token.span.open();
                let inside = start.byte_range().end;
                for value in returned(&signature.output) {
                    finder.add_at(inside..inside, start.start().line, How::Return((*value).to_owned()));
                }
            }
            finder.visit_block(body);
        });
    }

    /// A condition that is neither an operator nor a pattern, the other way round.
    fn condition(&mut self, condition: &syn::Expr) {
        if matches!(
            condition,
            syn::Expr::MethodCall(_)
                | syn::Expr::Call(_)
                | syn::Expr::Path(_)
                | syn::Expr::Field(_)
                | syn::Expr::Await(_)
        ) && !mentions(condition, PLANTED)
        {
            let text = format!("!({})", self.source(condition.span()));
            self.add(condition.span(), How::Replace(text));
        }
    }
}

/// What a function of this type may return at once.
fn returned(output: &syn::ReturnType) -> &'static [&'static str] {
    let syn::ReturnType::Type(_, output) = output else {
        return &["()"];
    };
    let text: String = output.to_token_stream().to_string().split_whitespace().collect();
    match text.as_str() {
        "bool" => &["true", "false"],
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => &["0", "1"],
        text if text.starts_with("Option<") => &["None"],
        text if text.starts_with("Result<()") => &["Ok(())"],
        text if text.starts_with("Result<bool") => &["Ok(true)", "Ok(false)"],
        text if text.starts_with("Result<Option<") => &["Ok(None)"],
        text if ["Result<u32", "Result<u64", "Result<usize"]
            .iter()
            .any(|start| text.starts_with(start)) =>
        {
            &["Ok(0)"]
        }
        _ => &[],
    }
}

fn mentions(part: &impl quote::ToTokens, word: &str) -> bool {
    part.to_token_stream().to_string().contains(word)
}

/// Whether the item is there for tests only, or not in the programs that we run.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg") && (mentions(attribute, "test") || mentions(attribute, "loom"))
    })
}

/// Whether an expression says by its last name that it is a time.
fn is_time(text: &str) -> bool {
    let name = text.trim_end_matches("()");
    name.to_ascii_lowercase().ends_with(TIME)
}

/// Whether a statement is `drop(variable);`.
fn drops_a_variable(statement: &syn::Stmt) -> bool {
    let syn::Stmt::Expr(syn::Expr::Call(call), Some(_)) = statement else {
        return false;
    };
    let is_drop = matches!(&*call.func, syn::Expr::Path(path) if path.path.is_ident("drop"));
    is_drop && matches!(call.args.first(), Some(syn::Expr::Path(_)))
}

/// Whether there is a pattern in a chain of conditions.
fn has_pattern(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_pattern(&binary.left) || has_pattern(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(&function.attrs, &function.sig, &function.block);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.function(&function.attrs, &function.sig, &function.block);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.function(&function.attrs, &function.sig, body);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            self.within(module.ident.to_string(), |finder| visit::visit_item_mod(finder, module));
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of = item.trait_.as_ref().and_then(|(path, _)| path.segments.last());
        let prints = of.is_some_and(|of| PRINTING.iter().any(|name| of.ident == name));
        if !prints && !is_for_tests(&item.attrs) {
            let name = match &*item.self_ty {
                syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
                _ => None,
            };
            self.within(name.unwrap_or_default(), |finder| visit::visit_item_impl(finder, item));
        }
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.within(item.ident.to_string(), |finder| visit::visit_item_trait(finder, item));
    }

    // What is computed by the compiler cannot be switched.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_expr_if(&mut self, branch: &'ast syn::ExprIf) {
        let plants = mentions(&branch.cond, PLANTED) && !mentions(&branch.cond, &format!("! {PLANTED}"));
        self.condition(&branch.cond);
        self.visit_expr(&branch.cond);
        if !plants {
            self.visit_block(&branch.then_branch);
        }
        if let Some((_, other)) = &branch.else_branch {
            self.visit_expr(other);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let syn::Pat::Guard(syn::PatGuard { guard, .. }) = &arm.pat {
            if mentions(guard, PLANTED) {
                return;
            }
            self.condition(guard);
            self.visit_expr(guard);
        }
        self.visit_expr(&arm.body);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        let operator = binary.op.to_token_stream().to_string();
        let is_chain = has_pattern(&binary.left) || has_pattern(&binary.right);
        let plants = mentions(binary, PLANTED);
        if !is_chain && !plants {
            let (left, right) = (self.source(binary.left.span()), self.source(binary.right.span()));
            let mut texts = Vec::new();
            let is_boundary = matches!(operator.as_str(), "<" | "<=" | ">" | ">=");
            let compares_times = is_boundary && [left, right].iter().any(|side| is_time(side));
            if !compares_times && let Some((_, other)) = OPERATORS.iter().find(|(from, _)| *from == operator) {
                texts.push(format!("{left} {other} {right}"));
            }
            let is_literal = matches!(&*binary.right, syn::Expr::Lit(_));
            if is_literal && matches!(binary.op, syn::BinOp::Add(_) | syn::BinOp::Sub(_)) {
                texts.push(left.to_owned());
            }
            for text in texts {
                self.add(binary.span(), How::Replace(text));
            }
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        if matches!(unary.op, syn::UnOp::Not(_)) && !mentions(unary, PLANTED) {
            let text = self.source(unary.expr.span()).to_owned();
            self.add(unary.span(), How::Replace(text));
        }
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if let Some((_, other)) = METHODS.iter().find(|(from, _)| call.method == from) {
            let (whole, name) = (call.span().byte_range(), call.method.span().byte_range());
            let text = format!(
                "{}{other}{}",
                &self.text[whole.start..name.start],
                &self.text[name.end..whole.end]
            );
            self.add(call.span(), How::Replace(text));
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        let name = path.path.segments.last().map(|last| last.ident.to_string());
        let is_constant = |name: &str| {
            name.len() > 1
                && name
                    .chars()
                    .all(|c| c.is_ascii_uppercase() || "_0123456789".contains(c))
        };
        if path.qself.is_none() && name.as_deref().is_some_and(|name| is_constant(name) && !is_time(name)) {
            let text = format!("{} - 1", self.source(path.span()));
            self.add(path.span(), How::Replace(text));
        }
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        // What is dropped at the end of a block is dropped there anyway.
        let (last, before) = match block.stmts.split_last() {
            Some((last, before)) if drops_a_variable(last) => (None, before),
            Some((last, before)) => (Some(last), before),
            None => return,
        };
        before
            .iter()
            .chain(last)
            .for_each(|statement| self.visit_stmt(statement));
    }

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        if ASIDE.iter().any(|aside| mentions(statement, aside)) && matches!(statement, syn::Stmt::Expr(_, Some(_))) {
            return;
        }
        if let syn::Stmt::Expr(expression, Some(_)) = statement {
            let is_step = matches!(
                expression,
                syn::Expr::Call(_)
                    | syn::Expr::MethodCall(_)
                    | syn::Expr::Await(_)
                    | syn::Expr::Try(_)
                    | syn::Expr::Assign(_)
                    | syn::Expr::Binary(_)
            );
            if is_step {
                self.add(statement.span(), How::LeaveOut);
            }
        }
        visit::visit_stmt(self, statement);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let mutants = mutants(text).expect("Rust");
        let described = mutants.into_iter().map(|mutant| match mutant.how {
            How::Replace(other) => format!("{} -> {other}", &text[mutant.at]),
            How::LeaveOut => format!("without {}", &text[mutant.at]),
            How::Return(value) => format!("{} returns {value}", mutant.function),
        });
        described.collect()
    }

    #[test]
    fn operators_conditions_constants_and_statements_are_changed() {
        let text =
            "impl Lock { fn wait(&self) -> u64 { if self.is_free() { self.enter(); } LIMIT.min(self.left + 1) } }";
        assert_eq!(
            found(text),
            [
                "Lock::wait returns 0",
                "Lock::wait returns 1",
                "self.is_free() -> !(self.is_free())",
                "without self.enter();",
                "LIMIT.min(self.left + 1) -> LIMIT.max(self.left + 1)",
                "LIMIT -> LIMIT - 1",
                "self.left + 1 -> self.left - 1",
                "self.left + 1 -> self.left",
            ]
        );
    }

    #[test]
    fn what_cannot_be_switched_or_is_wrong_on_purpose_is_left_alone() {
        for text in [
            "const A: u64 = 1 + 2; static B: bool = 1 < 2;",
            "const fn twice(x: u64) -> u64 { x * 2 }",
            "#[cfg(test)] mod tests { fn f() { g(); } }",
            "impl core::fmt::Debug for X { fn fmt(&self) -> bool { 1 < 2 } }",
            "fn f(x: [u8; N + 1]) -> T { match x { A..=B => T, _ if is_planted(\"f\") => g(1 + 2), _ => T } }",
            "fn f() -> T { if let Some(x) = y && is_planted(\"x\") { g(1 + 2) } else { T } }",
            "fn f(x: T) -> T { let y = || { drop(x); }; T }",
            "fn f(x: T) -> T { self.stopwatch.stop(x + 1); g(PAUSE_NS) }",
        ] {
            assert_eq!(found(text), Vec::<String>::new(), "{text}");
        }
    }
}
