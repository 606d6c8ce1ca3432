//! What the gateway and its client inside a sandbox say to each other: the
//! [`link`] over which commands are asked for, and the [`frame`]s in which each
//! of them is spoken about. The gateway links this crate for these two alone;
//! the roles of the program stand in the binary.

pub mod frame;
pub mod link;
