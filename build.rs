//! Stands in until the client inside the sandbox is embedded.
fn main() {}
