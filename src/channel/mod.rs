//! stub
pub mod http { use crate::{config::Config,error::Result,gateway::Handle}; pub struct Http; impl Http { pub fn start(_h:Handle,_t:std::net::TcpListener,_u:std::os::unix::net::UnixListener,_c:&Config)->Result<Self>{Ok(Self)} } }
