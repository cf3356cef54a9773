//! A client of a tree: how it opens it, and what it does beside its operations.

use farside_fabric::{Endpoint, OpContext, RemoteAddr};
use farside_index::{Tree, TreeOptions};
use farside_pool::{FormatOptions, Pool, PoolError, PoolOptions, open_or_format};

pub(crate) const LEASE_NS: u64 = 400_000;

pub(crate) const POOL: PoolOptions = PoolOptions {
    tick_ns: 20_000,
    lease_ns: LEASE_NS,
};

/// The tree as a new client sees it; the first one makes it.
pub(crate) async fn open_tree_with(endpoint: &Endpoint, options: TreeOptions, pool: PoolOptions) -> Tree {
    let pool = join(endpoint, pool).await;
    let mut cx = OpContext::new(endpoint.clone());
    Tree::create(&mut cx, pool, options).await.expect("a tree")
}

/// The pool as a new client sees it; the first one makes it.
pub(crate) async fn join(endpoint: &Endpoint, pool: PoolOptions) -> Pool {
    let mut cx = OpContext::new(endpoint.clone());
    let format = FormatOptions {
        clients_max: 64,
        chunk_bytes: Some(32 << 10),
        patience_ns: 5 * LEASE_NS,
    };
    let geometry = open_or_format(&mut cx, format).await.expect("a pool");
    Pool::join(&mut cx, geometry, pool).await.expect("a client")
}

/// Searches for what dead clients have left, as long as the client works.
pub(crate) async fn recover(endpoint: Endpoint, tree: Tree) {
    let walked = tree.clone();
    let walk = async |cx: &mut OpContext, visit: &mut dyn FnMut(_)| Ok(walked.walk(cx, visit).await?);
    recover_with(endpoint, tree.pool(), walk).await;
}

/// The same with another way to walk.
pub(crate) async fn recover_with(
    endpoint: Endpoint,
    pool: &Pool,
    walk: impl AsyncFn(&mut OpContext, &mut dyn FnMut(RemoteAddr)) -> Result<(), PoolError>,
) {
    let mut cx = OpContext::new(endpoint.clone());
    while !pool.has_ended() {
        endpoint.sleep(50_000).await;
        if pool.needs_recovery()
            && let Err(error) = pool.recover(&mut cx, &walk).await
        {
            assert!(pool.has_ended(), "a search for lost blocks: {error}");
        }
    }
}
