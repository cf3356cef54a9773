//! Manifests: names, lints, and dependencies that are declared once, with a reason.

use toml::{Table, Value};

use super::Violation;
use super::workspace::{Crate, Workspace};

pub(super) fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut violations: Vec<_> = workspace.crates.iter().flat_map(check_crate).collect();
    violations.extend(check_reasons(&workspace.manifest));
    violations
}

fn check_crate(member: &Crate) -> Vec<Violation> {
    let path = member.manifest_path();
    let mut violations = Vec::new();
    let mut report = |message: String| violations.push(Violation::of_file(&path, message));

    if member
        .folder
        .file_name()
        .is_none_or(|folder| folder != member.name.as_str())
    {
        report(format!(
            "crate {} must lie in a folder of its name, not in {}",
            member.name,
            member.folder.display()
        ));
    }
    let Ok(manifest) = member.manifest.parse::<Table>() else {
        report("is not valid TOML".to_owned());
        return violations;
    };
    if !manifest.get("lints").is_some_and(inherits) {
        report("does not take the lints of the workspace; add `[lints]` with `workspace = true`".to_owned());
    }
    for (name, value) in dependency_tables(&manifest).into_iter().flatten() {
        if !inherits(value) {
            report(format!(
                "declares {name} itself; declare it in the root Cargo.toml and write `{name}.workspace = true`"
            ));
        }
    }
    violations
}

/// `[dependencies]`, `[dev-dependencies]`, `[build-dependencies]`, and the same below each `[target.*]`.
fn dependency_tables(manifest: &Table) -> Vec<&Table> {
    let targets = manifest
        .get("target")
        .and_then(Value::as_table)
        .into_iter()
        .flat_map(|targets| targets.values());
    std::iter::once(manifest)
        .chain(targets.filter_map(Value::as_table))
        .flat_map(|owner| ["dependencies", "dev-dependencies", "build-dependencies"].map(|key| owner.get(key)))
        .filter_map(|table| table?.as_table())
        .collect()
}

fn inherits(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

/// Every external crate has a comment right above it that says why it is worth it. Our own crates need none.
fn check_reasons(manifest: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut is_inside = false;
    let mut previous = "";
    for (number, line) in (1..).zip(manifest.lines()) {
        if line.starts_with('[') {
            is_inside = line.trim_end() == "[workspace.dependencies]";
        }
        let starts_entry = line.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '"');
        if is_inside && starts_entry && !line.starts_with("farside") && !previous.starts_with('#') {
            let name = line.split(['=', '.', ' ']).next().unwrap_or(line);
            let message = format!("{name} does not say why it is worth it; put a comment above it");
            violations.push(Violation::of_line("Cargo.toml".as_ref(), number, message));
        }
        previous = line;
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::assert_only_violation;
    use super::super::workspace::samples;
    use super::*;

    const POOL: &str = "crates/farside-pool/Cargo.toml";

    fn check_pool_with(manifest: &str) -> Vec<Violation> {
        let mut workspace = samples::workspace();
        samples::member(&mut workspace, "farside-pool").manifest = manifest.to_owned();
        check(&workspace)
    }

    #[test]
    fn folder_of_another_name_is_caught() {
        let mut workspace = samples::workspace();
        samples::member(&mut workspace, "farside-pool").folder = "crates/pool".into();
        assert_only_violation(
            &check(&workspace),
            "crates/pool/Cargo.toml",
            "must lie in a folder of its name",
        );
    }

    #[test]
    fn missing_lints_are_caught() {
        assert_only_violation(&check_pool_with("[dependencies]\n"), POOL, "lints of the workspace");
        assert_only_violation(
            &check_pool_with("[lints]\nworkspace = false\n"),
            POOL,
            "lints of the workspace",
        );
    }

    #[test]
    fn dependency_with_a_version_of_its_own_is_caught() {
        for table in [
            "dependencies",
            "dev-dependencies",
            "build-dependencies",
            "target.'cfg(unix)'.dependencies",
        ] {
            let manifest = format!("lints.workspace = true\n[{table}]\nbytes = \"1\"\n");
            assert_only_violation(&check_pool_with(&manifest), POOL, "declares bytes itself");
        }
    }

    #[test]
    fn dependency_of_the_workspace_may_add_features() {
        let manifest =
            "[lints]\nworkspace = true\n[dependencies]\nbytes = { workspace = true, features = [\"std\"] }\n";
        assert_eq!(check_pool_with(manifest), []);
    }

    #[test]
    fn dependency_without_a_reason_is_caught() {
        let mut workspace = samples::workspace();
        workspace
            .manifest
            .push_str("libc = \"0.2\"\nfarside-pool = { path = \"crates/farside-pool\" }\n");
        assert_only_violation(&check(&workspace), "Cargo.toml", "libc does not say why");
    }
}
