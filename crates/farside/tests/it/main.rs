//! What the crate promises: the service, the library, and processes that die; one program, so that it is linked once.

#![forbid(unsafe_code)]

mod embedded;
mod rdma;
mod service;
mod soak;
