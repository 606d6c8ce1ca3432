//! What a plugin asks of who is on the other side of its conversation, and who
//! answers it: the gateway, or for what the gateway asks a built-in plugin.

use serde_json::Value;

use super::connection::Connection;
use super::rpc::Refusal;
use crate::worker::Cancel;

/// What a plugin asks of the gateway, answered by who is above.
pub trait Desk: Send + Sync {
    /// Answers a request, on a thread of its own.
    fn request(&self, request: &Request<'_>) -> Result<Value, Refusal>;

    /// Hears a notice; must not wait.
    fn notice(&self, plugin: &str, connection: &Connection, method: &str, params: &Value);
}

/// A request of a plugin.
pub struct Request<'a> {
    /// Who asks.
    pub plugin: &'a str,
    /// The request's id, by which notices can refer to it.
    pub id: &'a Value,
    /// What is asked for.
    pub method: &'a str,
    /// With what.
    pub params: &'a Value,
    /// For notices on the way.
    pub connection: &'a Connection,
    /// Called off once the plugin wants no answer any more, or has ended.
    pub cancel: &'a Cancel,
}
