//! What the gateway and its client inside a sandbox say to each other. The
//! gateway links this crate for [`frame`] alone; the roles of the program
//! stand in the binary.

pub mod frame;
