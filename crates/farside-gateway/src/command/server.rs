//! SELECT: there is one database.

use farside_fabric::Endpoint;

use super::{Call, Handled, NOT_AN_INTEGER};
use crate::integer;

pub(crate) async fn select<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    let number = integer::parse(call.request.arg(1)).filter(|number| i32::try_from(*number).is_ok());
    match number {
        None => Err(NOT_AN_INTEGER.into()),
        Some(0) => {
            call.reply.ok();
            Ok(())
        }
        Some(_) => Err("ERR DB index is out of range".into()),
    }
}
