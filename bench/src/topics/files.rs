//! The tools read, write and patch over the API, and beside them a request
//! that does nothing: what of each is the connection and the door.

use serde_json::json;

use crate::arguments::Options;
use crate::figures::Row;
use crate::house::{House, Runtime};
use crate::rounds::{self, Variant};
use crate::{Result, http};

/// A file of about four kilobytes.
const LINES: usize = 100;

pub(super) fn measure(options: &Options) -> Result<Vec<Row>> {
    let mut houses = Vec::new();
    for &runtime in Runtime::here(options) {
        let house = House::started(options, runtime, 1)?;
        house.tool("write", &json!({"path": "patched", "content": "one\n"}))?;
        house.tool("write", &json!({"path": "file", "content": text()}))?;
        houses.push((runtime, house));
    }
    let mut variants = Vec::new();
    for (runtime, house) in &houses {
        variants.extend(of_house(*runtime, house));
    }
    rounds::rows(options.rounds(50), variants)
}

fn of_house(runtime: Runtime, house: &House) -> [Variant<'_>; 4] {
    let name = runtime.name();
    let tool = |what: &str| format!("{name}: `{what}` by `POST …/exec`");
    let mut words = ["one", "two"];
    [
        Variant::new(format!("{name}: `GET /api/health`, for comparison"), || {
            http::get(&house.api(), "/api/health")?.sound().map(drop)
        }),
        Variant::new(tool("read"), || house.tool("read", &json!({"path": "file"}))),
        Variant::new(tool("write"), || {
            house.tool("write", &json!({"path": "file", "content": text()}))
        }),
        Variant::new(tool("patch"), move || {
            let [old, new] = words;
            words = [new, old];
            let params = json!({"path": "patched", "oldText": old, "newText": new});
            house.tool("patch", &params)
        }),
    ]
}

fn text() -> String {
    "a line of forty bytes, its end included\n".repeat(LINES)
}
