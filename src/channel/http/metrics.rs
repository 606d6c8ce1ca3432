//! The gateway's figures as Prometheus text. Pure. Labels are providers of the
//! configuration and words of closed sets, never what a client or a model says.

use std::fmt::Write;

use crate::gateway::{Counted, Figures, ProviderLoad};

/// Content type of the text.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All figures, a family after the other.
pub(super) fn text(figures: &Figures) -> String {
    let mut page = Page::default();
    state(&mut page, figures);
    loads(&mut page, &figures.health.providers);
    counted(&mut page, &figures.counted);
    page.0
}

fn state(page: &mut Page, figures: &Figures) {
    let (health, lines) = (&figures.health, figures.lines);
    page.family("beige_build_info", "gauge", "The program's version.");
    page.sample("beige_build_info", &[("version", health.version)], 1);
    for (name, help, value) in [
        ("beige_uptime_seconds", "Seconds since the start.", health.uptime_seconds),
        ("beige_agents", "Agents.", count(health.agents)),
        ("beige_sandboxes_up", "Sandboxes that are up.", count(health.sandboxes)),
        ("beige_sessions", "Sessions that have a key.", count(health.sessions)),
        ("beige_running_calls", "Calls that run or wait.", count(health.running)),
        ("beige_busy_sessions", "Sessions in which a turn runs.", count(lines.busy)),
        ("beige_waiting_prompts", "Prompts that wait for their session.", count(lines.waiting)),
        ("beige_models_cooling", "Models that cool down.", count(health.cooling.len())),
        ("beige_degraded", "Things that do not work as they should.", count(health.degraded.len())),
    ] {
        page.family(name, "gauge", help);
        page.sample(name, &[], value);
    }
}

fn loads(page: &mut Page, loads: &[ProviderLoad]) {
    type Value = fn(&ProviderLoad) -> f64;
    let families: [(&str, &str, &str, Value); 4] = [
        ("beige_provider_workers", "gauge", "Threads.", |it| as_f64(it.workers)),
        ("beige_provider_running", "gauge", "Model calls that run.", |it| as_f64(it.running)),
        ("beige_provider_queued", "gauge", "Model calls that wait.", |it| as_f64(it.queued)),
        (
            "beige_provider_wait_seconds_total",
            "counter",
            "Seconds that model calls waited for a worker.",
            |it| it.wait_seconds,
        ),
    ];
    for (name, kind, help, value) in families {
        page.family(name, kind, help);
        for load in loads {
            page.sample(name, &[("provider", &load.provider)], value(load));
        }
    }
}

fn counted(page: &mut Page, counted: &Counted) {
    let name = "beige_turns_total";
    page.family(name, "counter", "Turns that have ended, by how.");
    for (outcome, number) in &counted.turns {
        page.sample(name, &[("outcome", outcome)], *number);
    }
    let name = "beige_model_calls_total";
    page.family(name, "counter", "Model calls that have ended.");
    for (provider, calls) in &counted.providers {
        page.sample(name, &[("provider", provider)], calls.calls);
    }
    let name = "beige_model_failures_total";
    page.family(name, "counter", "Model calls without a whole answer, by category.");
    for (provider, calls) in &counted.providers {
        for (category, number) in &calls.failures {
            page.sample(name, &[("provider", provider), ("category", category)], *number);
        }
    }
    let name = "beige_model_tokens_total";
    page.family(name, "counter", "Tokens, as the providers count them.");
    for (provider, calls) in &counted.providers {
        for (kind, number) in [
            ("input", calls.input),
            ("output", calls.output),
            ("cache_read", calls.cache_read),
            ("cache_write", calls.cache_write),
        ] {
            page.sample(name, &[("provider", provider), ("kind", kind)], number);
        }
    }
}

fn as_f64(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::from(u32::MAX), f64::from)
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<String> =
            labels.iter().map(|(label, it)| format!("{label}=\"{}\"", escaped(it))).collect();
        let labels = labels.join(",");
        let braced = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
        let _ = writeln!(self.0, "{name}{braced} {value}");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::channel::http::tests::figures;
    use crate::gateway::ModelCalls;

    #[test]
    fn figures_are_samples_under_their_families() {
        let mut figures = figures();
        figures.counted.turns = BTreeMap::from([("aborted", 2), ("done", 40)]);
        let calls = ModelCalls {
            calls: 9,
            failures: BTreeMap::from([("cut", 1)]),
            input: 100,
            ..ModelCalls::default()
        };
        figures.counted.providers = BTreeMap::from([("a\"b\\".into(), calls)]);
        let text = text(&figures);
        for want in [
            "# TYPE beige_build_info gauge\nbeige_build_info{version=\"1\"} 1\n",
            "# TYPE beige_waiting_prompts gauge\nbeige_waiting_prompts 3\n",
            "beige_provider_queued{provider=\"p\"} 4\n",
            "beige_provider_wait_seconds_total{provider=\"p\"} 1.5\n",
            "beige_turns_total{outcome=\"aborted\"} 2\nbeige_turns_total{outcome=\"done\"} 40\n",
            "beige_model_failures_total{provider=\"a\\\"b\\\\\",category=\"cut\"} 1\n",
            "beige_model_tokens_total{provider=\"a\\\"b\\\\\",kind=\"input\"} 100\n",
        ] {
            assert!(text.contains(want), "{want} in {text}");
        }
        assert!(
            text.lines().all(|it| it.starts_with("# ") || it.split(' ').count() == 2),
            "{text}"
        );
    }
}
