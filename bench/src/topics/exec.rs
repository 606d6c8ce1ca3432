//! The cost of a command: by the shell of the host, by the container runtime's
//! own command line, and through beige in each of its ways. All in one round
//! robin, so that they can be compared.

use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::json;

use crate::Result;
use crate::arguments::Options;
use crate::figures::Row;
use crate::house::{House, Runtime};
use crate::http::Frames;
use crate::rounds::{self, Variant};

/// The houses of one runtime.
struct Pair {
    runtime: Runtime,
    with_gateway: House,
    without: House,
}

pub(super) fn measure(options: &Options) -> Result<Vec<Row>> {
    let pairs: Vec<Pair> = Runtime::here(options)
        .iter()
        .map(|&runtime| {
            let with_gateway = House::started(options, runtime, 1)?;
            let without = House::new(options, runtime, 1)?;
            Ok(Pair { runtime, with_gateway, without })
        })
        .collect::<Result<_>>()?;
    let shell = Variant::new("`sh -c true` on the host", || run("sh", &["-c", "true"]));
    let mut variants = vec![shell.with_bar("no sandbox: sh -c true")];
    for pair in &pairs {
        variants.extend(pair.variants()?);
    }
    rounds::rows(options.rounds(50), variants)
}

impl Pair {
    fn variants(&self) -> Result<Vec<Variant<'_>>> {
        let name = self.runtime.name();
        let gateway = &self.with_gateway;
        let api = gateway.api();
        let other = api.clone();
        let mut variants = vec![
            Variant::timed(format!("{name}: the gateway's own time for a command"), move || {
                let mut frames = Frames::open(&api, "a1")?;
                let begun = Instant::now();
                frames.run(&["true"])?;
                Ok(begun.elapsed())
            })
            .with_bar(format!("{name}: beige, one command")),
            Variant::new(format!("{name}: the tool `exec` by `POST …/exec`"), move || {
                crate::http::tool(&other, "a1", "exec", &json!({"command": "true"}))
            }),
            Variant::new(format!("{name}: `beige exec`, whole process"), || by_beige(gateway))
                .with_bar(format!("{name}: beige exec")),
            Variant::new(format!("{name}: `beige exec` without a gateway"), || {
                by_beige(&self.without)
            })
            .with_bar(format!("{name}: beige exec, no gateway")),
        ];
        if self.runtime.has_containers() {
            let container = gateway.container()?;
            let what = format!("`{name} exec`, whole process");
            let bare = Variant::new(what, move || run(name, &["exec", &container, "true"]));
            variants.push(bare.with_bar(format!("{name}: {name} exec")));
        }
        Ok(variants)
    }
}

fn by_beige(house: &House) -> Result<()> {
    let status = house.command(&["exec", "a1", "--", "true"]).stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("beige exec: {status}").into()) }
}

/// A program of the host, to its end.
pub(super) fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    let status = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{program}: {status}").into()) }
}
