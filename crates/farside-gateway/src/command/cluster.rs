//! CLUSTER: there is none, and each of its subcommands says so, as a Redis does that is no part of one.

use super::{Call, Handled};

pub(crate) async fn cluster(_: &mut Call<'_>) -> Handled {
    Err("ERR This instance has cluster support disabled".into())
}
