//! Front ends that the gateway itself runs. Each only translates between its
//! callers and `gateway::Handle`; none decides what an agent may do.

pub mod http;
