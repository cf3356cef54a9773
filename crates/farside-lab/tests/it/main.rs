//! What the crate promises: the driver, the figures and the program; one program of tests, so that it is linked once.

#![forbid(unsafe_code)]

mod applications;
mod bank;
mod calibrate;
mod declock;
mod figures;
mod measurements;
mod objects;
mod page;
mod rdma;
mod reports;
mod transactions;
