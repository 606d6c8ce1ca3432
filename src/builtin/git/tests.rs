//! What may be asked, as tables.
