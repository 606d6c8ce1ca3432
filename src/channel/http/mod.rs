//! The HTTP API: a front door that bounds everything, tiny_http behind it,
//! and routes that translate between HTTP and the gateway.

mod answer;
mod door;
mod guard;
mod token;

#[cfg(test)]
mod tests;
