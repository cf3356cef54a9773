//! The order of the layers, and the check of cargo's dependency graph against it.
//!
//! `LAYERS` is the one place where the order is written down, bottom up. Calls go down and values come back, so a crate
//! may depend on the layers its row names and on no other. Tests may reach further: a dev-dependency may name any layer
//! below, and the simulator harness.

use super::Violation;
use super::workspace::{Crate, DependencyKind, Workspace};

/// One crate and what it may see.
struct Layer {
    name: &'static str,
    may_use: &'static [&'static str],
}

const FABRIC: &str = "farside-fabric";
const POOL: &str = "farside-pool";
const LOCK: &str = "farside-lock";
const OBJECTS: &str = "farside-objects";
const SYNC: &str = "farside-sync";
const INDEX: &str = "farside-index";
const BUCKET: &str = "farside-bucket";
const RDB: &str = "farside-rdb";
const VALUE: &str = "farside-value";
const KV: &str = "farside-kv";
const ETCD: &str = "farside-etcd";
const NODE: &str = "farside-node";
const GATEWAY: &str = "farside-gateway";
const CLI: &str = "farside-cli";
const WATCH: &str = "farside-watch";
const LAB: &str = "farside-lab";
const SIM: &str = "farside-sim";
const CALLS: &str = "farside-calls";
const FARSIDE: &str = "farside";
const FARSIDE_C: &str = "farside-c";
const PYTHON: &str = "farside-python";
const XTASK: &str = "xtask";

/// Bottom up. A row before its crate is written costs nothing; a crate without a row is a violation.
const LAYERS: &[Layer] = &[
    // Bytes of values, and what commands do to them: it knows nothing of where they are.
    Layer {
        name: VALUE,
        may_use: &[],
    },
    Layer {
        name: FABRIC,
        may_use: &[],
    },
    Layer {
        name: POOL,
        may_use: &[FABRIC],
    },
    // A lock never allocates: the pool is not in its row.
    Layer {
        name: LOCK,
        may_use: &[FABRIC],
    },
    Layer {
        name: OBJECTS,
        may_use: &[LOCK, FABRIC],
    },
    Layer {
        name: SYNC,
        may_use: &[LOCK, POOL, FABRIC],
    },
    // The trees take node locks through the lock layer; the header of an item has the type of its value.
    Layer {
        name: INDEX,
        may_use: &[SYNC, LOCK, POOL, VALUE, FABRIC],
    },
    // It holds the one file that puts index, scheme, lock and backend together, so it sees them all.
    Layer {
        name: KV,
        may_use: &[INDEX, SYNC, LOCK, POOL, VALUE, FABRIC],
    },
    // A format of values elsewhere: it knows that of values here, and nothing of a store.
    Layer {
        name: RDB,
        may_use: &[VALUE],
    },
    // A place for files: it knows nothing of what is in them.
    Layer {
        name: BUCKET,
        may_use: &[],
    },
    // Views of groups, kept outside: the fabric says what a view is.
    Layer {
        name: ETCD,
        may_use: &[FABRIC],
    },
    // It serves memory and knows nothing of keys.
    Layer {
        name: NODE,
        may_use: &[POOL, FABRIC],
    },
    // The fabric for its errors and clock.
    Layer {
        name: GATEWAY,
        may_use: &[RDB, VALUE, KV, FABRIC],
    },
    // What both programs say in the same way.
    Layer {
        name: CLI,
        may_use: &[FABRIC],
    },
    Layer {
        name: SIM,
        may_use: &[KV, INDEX, SYNC, LOCK, POOL, VALUE, FABRIC],
    },
    // Whoever looks on. The pool and the store for what a memory node tells of its memory.
    Layer {
        name: WATCH,
        may_use: &[CLI, GATEWAY, KV, POOL, FABRIC],
    },
    // Two programs; neither drags in the other.
    Layer {
        name: LAB,
        may_use: &[SIM, CLI, GATEWAY, NODE, KV, INDEX, SYNC, OBJECTS, LOCK, POOL, FABRIC],
    },
    Layer {
        name: FARSIDE,
        may_use: &[
            WATCH, CLI, GATEWAY, NODE, ETCD, BUCKET, RDB, KV, INDEX, SYNC, LOCK, POOL, FABRIC,
        ],
    },
    // The same for C: what it says of the store it says to the library that is embedded.
    Layer {
        name: FARSIDE_C,
        may_use: &[FARSIDE],
    },
    // And for Python.
    Layer {
        name: PYTHON,
        may_use: &[FARSIDE],
    },
    // What `cargo xtask weight` counts: calls of the store, of locks and through a gateway, with what the product consists of.
    Layer {
        name: CALLS,
        may_use: &[GATEWAY, KV, LOCK, POOL, FABRIC],
    },
    // The development commands stand beside the product.
    Layer {
        name: XTASK,
        may_use: &[],
    },
];

pub(super) fn check(workspace: &Workspace) -> Vec<Violation> {
    workspace.crates.iter().flat_map(check_crate).collect()
}

fn check_crate(member: &Crate) -> Vec<Violation> {
    let path = member.manifest_path();
    let Some(height) = height(&member.name) else {
        let message = format!(
            "{} has no row in the table of layers (LAYERS in xtask/src/tidy/layers.rs)",
            member.name
        );
        return vec![Violation::of_file(&path, message)];
    };
    let layer = &LAYERS[height];

    let mut violations = Vec::new();
    for dependency in &member.dependencies {
        let name = dependency.name.as_str();
        if dependency.kind == DependencyKind::Development {
            let is_below = self::height(name).is_some_and(|other| other < height);
            // On itself: with the features that its tests need.
            let is_itself = name == member.name;
            if !is_below && !is_itself && name != SIM {
                let message = format!(
                    "the tests of {} may not use {name}, which is not a layer below",
                    member.name
                );
                violations.push(Violation::of_file(&path, message));
            }
        } else if !layer.may_use.contains(&name) {
            let allowed = if layer.may_use.is_empty() {
                "no other layer".to_owned()
            } else {
                layer.may_use.join(", ")
            };
            let message = format!("{} may not depend on {name}; it may use {allowed}", member.name);
            violations.push(Violation::of_file(&path, message));
        }
    }
    violations
}

/// Position in the table, counted from the bottom.
fn height(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.name == name)
}

#[cfg(test)]
mod tests {
    use super::super::assert_only_violation;
    use super::super::workspace::{Dependency, samples};
    use super::*;

    fn depend(workspace: &mut Workspace, from: &str, on: &str, kind: DependencyKind) {
        samples::member(workspace, from).dependencies.push(Dependency {
            name: on.to_owned(),
            kind,
        });
    }

    #[test]
    fn every_row_names_only_rows_below_it() {
        for (height, layer) in LAYERS.iter().enumerate() {
            for name in layer.may_use {
                let below = self::height(name).expect("a row names rows of the table");
                assert!(below < height, "{} would depend upward on {name}", layer.name);
            }
        }
    }

    #[test]
    fn upward_dependency_is_caught() {
        let mut workspace = samples::workspace();
        depend(&mut workspace, FABRIC, POOL, DependencyKind::Normal);
        assert_only_violation(
            &check(&workspace),
            "crates/farside-fabric/Cargo.toml",
            "may not depend on farside-pool",
        );
    }

    #[test]
    fn sideways_dependency_is_caught() {
        let mut workspace = samples::workspace();
        depend(&mut workspace, LOCK, POOL, DependencyKind::Normal);
        assert_only_violation(
            &check(&workspace),
            "crates/farside-lock/Cargo.toml",
            "it may use farside-fabric",
        );
    }

    #[test]
    fn build_dependency_counts_as_a_dependency() {
        let mut workspace = samples::workspace();
        depend(&mut workspace, FABRIC, LOCK, DependencyKind::Build);
        assert_only_violation(
            &check(&workspace),
            "crates/farside-fabric/Cargo.toml",
            "may not depend on farside-lock",
        );
    }

    #[test]
    fn crate_without_a_row_is_caught() {
        let mut workspace = samples::workspace();
        samples::add_crate(&mut workspace, "farside-extra", &[]);
        assert_only_violation(&check(&workspace), "crates/farside-extra/Cargo.toml", "has no row");
    }

    #[test]
    fn tests_may_use_any_layer_below_and_the_simulator() {
        let mut workspace = samples::workspace();
        depend(&mut workspace, LOCK, POOL, DependencyKind::Development);
        depend(&mut workspace, FABRIC, SIM, DependencyKind::Development);
        assert_eq!(check(&workspace), []);
    }

    #[test]
    fn tests_may_not_use_a_layer_above() {
        let mut workspace = samples::workspace();
        depend(&mut workspace, POOL, KV, DependencyKind::Development);
        assert_only_violation(
            &check(&workspace),
            "crates/farside-pool/Cargo.toml",
            "may not use farside-kv",
        );
    }
}
