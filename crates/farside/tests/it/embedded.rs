//! The library as a program that embeds it meets it: threads, processes, memory nodes.

mod containers;
mod eviction;
mod examples;
mod interfaces;
mod locks;
mod model;
mod process;
mod processes;
mod remote;
