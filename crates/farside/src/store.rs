//! The flags that say how a store is made and used, alike for `serve` and `gateway`.

use clap::Args;
use farside_index::IndexKind;
use farside_kv::StoreConfig;
use farside_sync::Scheme;

#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// The index of memory that nobody has used yet [default: race]
    #[arg(long, value_name = "NAME", value_parser = index)]
    index: Option<IndexKind>,
    /// How concurrent changes of a key are synchronised
    #[arg(long, value_name = "NAME", default_value = "farside", value_parser = scheme)]
    sync: Scheme,
    /// Combine writes of the same key by the connections of a thread, and share their reads of it
    #[arg(long)]
    local_wc: bool,
}

impl StoreArgs {
    pub(crate) fn config(&self) -> StoreConfig {
        StoreConfig {
            index: self.index,
            scheme: self.sync,
            local_wc: self.local_wc,
            ..StoreConfig::default()
        }
    }

    /// The synchronisation, for the first line that is printed.
    pub(crate) fn sync_text(&self) -> String {
        let shared = if self.local_wc { ", local write combining" } else { "" };
        format!("{}{shared}", self.sync.name())
    }
}

fn index(name: &str) -> Result<IndexKind, String> {
    IndexKind::by_name(name).ok_or_else(|| {
        let names = IndexKind::ALL.map(|(_, name, _)| name);
        format!("there is no index `{name}`; there are: {}", names.join(", "))
    })
}

fn scheme(name: &str) -> Result<Scheme, String> {
    Scheme::by_name(name).ok_or_else(|| {
        let names: Vec<_> = Scheme::named().map(|(_, name)| name).collect();
        format!("there is no scheme `{name}`; there are: {}", names.join(", "))
    })
}
