//! The service as a user meets it: the built binary, over real sockets, files and signals.

mod acl;
mod certificates;
mod client;
mod command_line;
mod commands;
mod console;
mod eviction;
mod expiry;
mod floods;
mod health;
mod libraries;
mod locks;
mod multi;
mod observability;
mod observing;
mod persistence;
mod pools;
mod process;
mod ranges;
mod scan;
mod settings;
mod shutdown;
mod substrings;
mod tls;
mod transfers;
mod unix;
