//! Writes what was measured: a table for people, a plot, and JSON.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::Result;
use crate::figures::Row;
use crate::machine::Fact;
use crate::plot::{self, Bar};

/// All that was measured.
pub(crate) struct Report {
    machine: Vec<Fact>,
    topics: Vec<(&'static str, Vec<Row>)>,
}

impl Report {
    /// An empty one, of this machine.
    pub(crate) fn new(machine: Vec<Fact>) -> Self {
        Self { machine, topics: Vec::new() }
    }

    /// Adds a topic, and tells its lines.
    pub(crate) fn add(&mut self, topic: &'static str, rows: Vec<Row>) {
        for row in &rows {
            eprintln!("  {}", row.markdown());
        }
        self.topics.push((topic, rows));
    }

    /// Writes `RESULT.md`, `latest.json` and, if there is something to draw,
    /// `plot.svg`.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("RESULT.md"), self.markdown())?;
        fs::write(folder.join("latest.json"), format!("{:#}\n", self.json()))?;
        let bars = self.bars();
        if !bars.is_empty() {
            fs::write(folder.join("plot.svg"), plot::draw(&bars))?;
        }
        Ok(())
    }

    fn bars(&self) -> Vec<Bar> {
        let rows = self.topics.iter().flat_map(|it| &it.1);
        let bar = |row: &Row| Some(Bar::new(row.bar.clone()?, row.spread.clone()));
        rows.filter_map(bar).collect()
    }

    fn markdown(&self) -> String {
        let mut text = String::from(
            "# Results\n\nWritten by `make bench`; [docs/performance.md](../../docs/performance.md) \
             says what each line means.\n\n| | |\n| --- | --- |\n",
        );
        for (what, which) in &self.machine {
            text.push_str(&format!("| {what} | {which} |\n"));
        }
        for (topic, rows) in &self.topics {
            text.push_str(&format!(
                "\n## {topic}\n\n| | median | min | max | measured |\n\
                 | --- | ---: | ---: | ---: | ---: |\n"
            ));
            for row in rows {
                text.push_str(&(row.markdown() + "\n"));
            }
        }
        text
    }

    fn json(&self) -> Value {
        let machine = self.machine.iter().map(|(what, which)| ((*what).into(), json!(which)));
        let topic = |(name, rows): &(&'static str, Vec<Row>)| {
            ((*name).into(), rows.iter().map(Row::json).collect())
        };
        let topics: Map<String, Value> = self.topics.iter().map(topic).collect();
        json!({ "machine": machine.collect::<Map<String, Value>>(), "topics": topics })
    }
}
