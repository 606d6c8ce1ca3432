//! What is sent.
