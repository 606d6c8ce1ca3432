//! One provider, or another server that is spoken to over HTTP: its protocol, where its answers come from, and what is said
//! of its models. A setting that its protocol has no use for is refused.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use ureq::http::{HeaderName, HeaderValue, Uri};

use crate::config::assemble::{Assembly, proxy};
use crate::config::check::whole_number;
use crate::config::node::Node;
use crate::config::{
    Api, Endpoint, ModelFacts, PluginSource, Price, Provider, Reach, Timeouts, by_name,
};
use crate::secret::Secret;

/// Providers that need no `baseUrl`.
const KNOWN: &[(&str, &str)] = &[
    ("anthropic", "https://api.anthropic.com"),
    ("google", "https://generativelanguage.googleapis.com/v1beta"),
    ("openai", "https://api.openai.com/v1"),
    ("openrouter", "https://openrouter.ai/api/v1"),
    ("groq", "https://api.groq.com/openai/v1"),
    ("mistral", "https://api.mistral.ai/v1"),
    ("deepseek", "https://api.deepseek.com/v1"),
    ("xai", "https://api.x.ai/v1"),
    ("together", "https://api.together.xyz/v1"),
    ("fireworks", "https://api.fireworks.ai/inference/v1"),
    ("cerebras", "https://api.cerebras.ai/v1"),
    ("zai", "https://api.z.ai/api/paas/v4"),
    ("moonshot", "https://api.moonshot.ai/v1"),
    ("ollama", "http://127.0.0.1:11434/v1"),
    ("lmstudio", "http://127.0.0.1:1234/v1"),
    ("llamacpp", "http://127.0.0.1:8080/v1"),
    ("vllm", "http://127.0.0.1:8000/v1"),
];

/// What shapes a connection, and so means nothing without one.
const OF_CONNECTIONS: &[&str] = &["apiKey", "baseUrl", "headers", "caFile", "proxy", "timeouts"];

/// Headers that the request itself decides.
const RESERVED: &[&str] = &["host", "content-length", "transfer-encoding", "connection", "expect"];

/// How long a provider may take unless the configuration says otherwise.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(10),
    first_byte: Duration::from_secs(120),
    idle: Duration::from_secs(120),
};

/// How long a plugin may take to be connected to, and to say nothing: a call has
/// its own limit.
const PLUGIN_TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(5),
    first_byte: Duration::from_secs(300),
    idle: Duration::from_secs(300),
};

/// Headers that MCP decides.
const OF_MCP: &[&str] =
    &["accept", "content-type", "mcp-session-id", "mcp-protocol-version", "last-event-id"];

impl Assembly<'_> {
    pub(super) fn provider(&mut self, name: &str, node: &Node<'_>) -> Provider {
        let api = api_of(name, node.get("api").text());
        let (reach, record) = match api {
            Some(Api::Replay) => (self.cassette(node), None),
            Some(_) => (self.endpoint(name, node), self.record(node)),
            // Refused by the schema; what else it needs is not known here.
            None => (Reach::Cassette(PathBuf::new()), None),
        };
        Provider {
            api: api.unwrap_or(Api::Replay),
            reach,
            record,
            concurrency: self.concurrency(&node.get("concurrency")),
            models: models(&node.get("models")),
        }
    }

    fn cassette(&mut self, node: &Node<'_>) -> Reach {
        self.refuse_each(node, OF_CONNECTIONS, "a `replay` provider connects to nothing");
        let cassette = node.get("cassette");
        if cassette.value.is_null() {
            self.refuse(&cassette.path, "a `replay` provider needs a `cassette` to play back");
        }
        let record = node.get("record");
        if record.value.as_bool() == Some(true) {
            self.refuse(&record.path, "a `replay` provider says nothing new to record");
        }
        Reach::Cassette(self.expanded(&cassette).unwrap_or_default())
    }

    /// The cassette that what a server says is appended to.
    fn record(&mut self, node: &Node<'_>) -> Option<PathBuf> {
        let (cassette, record) = (node.get("cassette"), node.get("record"));
        let records = record.value.as_bool() == Some(true);
        match (records, cassette.value.is_null()) {
            (true, false) => return self.expanded(&cassette),
            (true, true) => {
                self.refuse(&record.path, "`record: true` needs a `cassette` to append to");
            }
            (false, false) => {
                let what = "only a `replay` provider, or one with `record: true`, has a cassette";
                self.refuse(&cassette.path, what);
            }
            (false, true) => {}
        }
        None
    }

    fn endpoint(&mut self, name: &str, node: &Node<'_>) -> Reach {
        let base_url = self.base_url(name, node);
        let uri = base_url.parse::<Uri>().unwrap_or_default();
        let is_loopback = is_loopback(&uri);
        let api_key = self.api_key(&node.get("apiKey"));
        let headers = self.headers(&node.get("headers"));
        if !is_loopback && uri.host().is_some() {
            self.warn_of_key(node, &uri, api_key.is_some(), headers.is_empty());
        }
        Reach::Endpoint(Box::new(Endpoint {
            api_key,
            headers,
            ca_file: self.ca_file(&node.get("caFile")),
            proxy: if is_loopback { None } else { self.proxy(&node.get("proxy"), &uri) },
            timeouts: timeouts(&node.get("timeouts")),
            base_url,
        }))
    }

    /// A plugin that is a server elsewhere.
    pub(super) fn plugin_url(&mut self, node: &Node<'_>) -> PluginSource {
        if !node.get("env").entries().is_empty() {
            let what = "a server by `url` is no process, and has no environment; see `headers`";
            self.refuse(&node.get("env").path, what);
        }
        let url = node.get("url");
        let base_url = url.text_or_empty();
        let uri = base_url.parse::<Uri>().unwrap_or_default();
        if let Some(wrong) = wrong_with_address(&base_url, &uri) {
            self.refuse(&url.path, wrong);
        }
        let is_loopback = is_loopback(&uri);
        if !is_loopback && uri.scheme_str() == Some("http") {
            let host = uri.host().unwrap_or_default();
            let what = format!(
                "all that agents ask of {host}, and the headers, go there unencrypted; use https"
            );
            self.findings.warn(&url.path, what);
        }
        PluginSource::Url(Box::new(Endpoint {
            api_key: None,
            headers: self.mcp_headers(&node.get("headers")),
            ca_file: self.ca_file(&node.get("caFile")),
            proxy: if is_loopback { None } else { self.proxy(&node.get("proxy"), &uri) },
            timeouts: PLUGIN_TIMEOUTS,
            base_url,
        }))
    }

    /// Refuses each of these that is there.
    pub(super) fn refuse_each(&mut self, node: &Node<'_>, keys: &[&str], what: &str) {
        for key in keys {
            let setting = node.get(key);
            if !setting.value.is_null() {
                self.refuse(&setting.path, what);
            }
        }
    }

    fn base_url(&mut self, name: &str, node: &Node<'_>) -> String {
        let given = node.get("baseUrl");
        let known = KNOWN.iter().find(|it| it.0 == name).map(|it| it.1);
        let Some(text) = given.text().or(known) else {
            self.miss_url(&given);
            return String::new();
        };
        if let Some(wrong) = wrong_with_url(text) {
            self.refuse(&given.path, wrong);
        }
        text.trim_end_matches('/').to_owned()
    }

    fn miss_url(&mut self, given: &Node<'_>) {
        if given.value.is_null() {
            let known: Vec<&str> = KNOWN.iter().map(|it| it.0).collect();
            let what = format!("only these need none: {}", known.join(", "));
            self.refuse(&given.path, format!("this field is missing; {what}"));
        }
    }

    fn warn_of_key(&mut self, node: &Node<'_>, uri: &Uri, has_key: bool, no_headers: bool) {
        let host = uri.host().unwrap_or_default();
        if has_key && uri.scheme_str() == Some("http") {
            let what = format!("the key goes to {host} unencrypted; use https");
            self.findings.warn(&node.get("baseUrl").path, what);
        }
        if !has_key && no_headers {
            let what = format!("there is no `apiKey` for {host}, which may refuse every call");
            self.findings.warn(&node.path, what);
        }
    }

    fn api_key(&mut self, node: &Node<'_>) -> Option<Secret> {
        // `${KEY:-}` says that there may be none.
        let key = node.text().map(str::trim).filter(|it| !it.is_empty())?;
        if HeaderValue::from_str(key).is_err() {
            self.refuse(&node.path, "a key cannot hold line breaks or control characters");
        }
        Some(Secret::new(key))
    }

    fn headers(&mut self, node: &Node<'_>) -> Vec<(String, Secret)> {
        let mut headers = Vec::new();
        for (name, value) in node.entries() {
            let text = value.text_or_empty();
            if let Some(wrong) = wrong_with_header(name, &text) {
                self.refuse(&value.path, wrong);
            }
            headers.push((name.to_owned(), Secret::new(text)));
        }
        headers
    }

    fn mcp_headers(&mut self, node: &Node<'_>) -> Vec<(String, Secret)> {
        let headers = self.headers(node);
        for (name, _) in &headers {
            if OF_MCP.contains(&name.to_ascii_lowercase().as_str()) {
                let what = format!("`{name}` is set by the protocol itself");
                self.refuse(&node.get(name).path, what);
            }
        }
        headers
    }

    fn ca_file(&mut self, node: &Node<'_>) -> Option<PathBuf> {
        let path = self.expanded(node)?;
        if !path.is_file() {
            self.refuse(&node.path, format!("{} is not a file", path.display()));
        }
        Some(path)
    }

    fn proxy(&mut self, node: &Node<'_>, target: &Uri) -> Option<Secret> {
        let (url, origin) = match node.text() {
            Some(text) => (text.to_owned(), None),
            None => {
                let (url, variable) = proxy::of_environment(target, self.surroundings.environment)?;
                (url, Some(variable))
            }
        };
        if let Some(wrong) = proxy::wrong_with(&url) {
            let origin = origin.map_or_else(String::new, |it| format!("the variable {it}: "));
            self.refuse(&node.path, format!("{origin}{wrong}"));
        }
        Some(Secret::new(url))
    }

    fn concurrency(&mut self, node: &Node<'_>) -> Option<NonZeroUsize> {
        if whole_number(node.value) == Some(0) {
            self.refuse(&node.path, "must be 1 or more, or -1 for no limit");
        }
        NonZeroUsize::new(node.whole())
    }
}

/// The protocol that is said, or else that of the provider's name; `None` where
/// what is said is none.
fn api_of(name: &str, said: Option<&str>) -> Option<Api> {
    match (said, name) {
        (Some(said), _) => Api::ALL.into_iter().find(|it| it.name() == said),
        (None, "anthropic") => Some(Api::AnthropicMessages),
        (None, "google") => Some(Api::GoogleGenerativeAi),
        (None, _) => Some(Api::OpenAiCompletions),
    }
}

fn models(node: &Node<'_>) -> BTreeMap<String, ModelFacts> {
    by_name(node.entries().into_iter().map(|(id, it)| (id.to_owned(), facts(&it))))
}

fn facts(node: &Node<'_>) -> ModelFacts {
    let whole = |name| whole_number(node.get(name).value).and_then(|it| u64::try_from(it).ok());
    let input = node.get("input");
    let cost = node.get("cost");
    let price = |name| cost.get(name).number();
    // Without a price of its own a cache saves nothing.
    let base = price("input").unwrap_or_default();
    ModelFacts {
        name: node.get("name").text().map(str::to_owned),
        context_window: whole("contextWindow"),
        max_tokens: whole("maxTokens"),
        known_max_tokens: None,
        reasoning: node.get("reasoning").value.as_bool(),
        images: input.value.is_array().then(|| input.texts().iter().any(|it| it == "image")),
        cost: cost.value.is_object().then(|| Price {
            input: base,
            output: price("output").unwrap_or_default(),
            cache_read: price("cacheRead").unwrap_or(base),
            cache_write: price("cacheWrite").unwrap_or(base),
            long: None,
        }),
        text_tools: node.get("compat").get("textTools").value.as_bool() == Some(true),
    }
}

fn timeouts(node: &Node<'_>) -> Timeouts {
    let or = |name, default| node.get(name).duration().unwrap_or(default);
    Timeouts {
        connect: or("connectSeconds", TIMEOUTS.connect),
        first_byte: or("firstByteSeconds", TIMEOUTS.first_byte),
        idle: or("idleSeconds", TIMEOUTS.idle),
    }
}

fn wrong_with_url(text: &str) -> Option<String> {
    let uri = text.parse::<Uri>().unwrap_or_default();
    wrong_with_address(text, &uri).or_else(|| wrong_with_parts(text, &uri).map(str::to_owned))
}

fn wrong_with_address(text: &str, uri: &Uri) -> Option<String> {
    if matches!(uri.scheme_str(), Some("http" | "https")) && has_host(uri) {
        return wrong_with_login(text, uri).map(str::to_owned);
    }
    let hint = with_scheme(text).map_or_else(
        || ", and then names a host, as in `https://api.example.org/v1`".to_owned(),
        |it| format!("; write `{it}`"),
    );
    Some(format!("must be a URL that begins with http:// or https://{hint}"))
}

/// What a URL without its scheme was most likely meant to be.
fn with_scheme(text: &str) -> Option<String> {
    let text = text.trim().trim_start_matches("//");
    // What holds an `@` may hold a password.
    if text.contains("://") || text.contains(['@', '?', '#']) {
        return None;
    }
    let meant: Uri = format!("http://{text}").parse().ok().filter(has_host)?;
    let host = meant.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_near = host.parse::<IpAddr>().is_ok() || !host.contains('.');
    // `http:/host` is a slip of another kind.
    let is_scheme = matches!(host, "http" | "https");
    (!is_scheme).then(|| format!("{}://{text}", if is_near { "http" } else { "https" }))
}

fn has_host(uri: &Uri) -> bool {
    uri.host().is_some_and(|it| !it.is_empty())
}

fn wrong_with_login(text: &str, uri: &Uri) -> Option<&'static str> {
    if uri.authority().is_some_and(|it| it.as_str().contains('@')) {
        return Some("must not hold a name or password; a key belongs in `apiKey` or `headers`");
    }
    text.contains('#').then_some("must end with its path: no `#`")
}

fn wrong_with_parts(text: &str, uri: &Uri) -> Option<&'static str> {
    if uri.query().is_some() || text.contains('#') {
        return Some("must end with its path: no `?` and no `#`");
    }
    let path = uri.path().trim_end_matches('/');
    let added = ["/chat/completions", "/responses", "/v1/messages"];
    added.iter().any(|it| path.ends_with(it)).then_some(
        "must end before `/chat/completions`, `/responses` or `/v1/messages`, which each call adds: \
         leave it out",
    )
}

fn wrong_with_header(name: &str, value: &str) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    if HeaderName::try_from(name).is_err() {
        return Some(format!("`{name}` is no name for a header"));
    }
    if RESERVED.contains(&lower.as_str()) {
        return Some(format!("`{name}` is set by the request itself"));
    }
    HeaderValue::from_str(value)
        .is_err()
        .then(|| "a header's value cannot hold line breaks or control characters".into())
}

impl Endpoint {
    /// Whether it is on this very machine, so that no proxy is used.
    pub fn is_loopback(&self) -> bool {
        self.base_url.parse().is_ok_and(|it| is_loopback(&it))
    }
}

/// Whether a URL leads to this very machine.
fn is_loopback(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_url(text: &str, sound: bool) {
        assert_eq!(wrong_with_url(text).is_none(), sound, "{text}");
    }

    #[track_caller]
    fn check_address(text: &str, sound: bool) {
        let uri = text.parse().unwrap_or_default();
        assert_eq!(wrong_with_address(text, &uri).is_none(), sound, "{text}");
    }

    #[test]
    fn a_base_url_is_plain() {
        check_url("http://127.0.0.1:8000/v1/", true);
        check_url("https://[::1]:1/v1", true);
        check_url("ftp://a/", false);
        check_url("api.openai.com/v1", false);
        check_url("https://", false);
        check_url("https://key@a/v1", false);
        check_url("https://a/v1?key=1", false);
        check_url("https://a/v1#x", false);
        check_address("https://a/mcp?key=1", true);
        check_address("https://a/mcp/", true);
        check_address("https://a/mcp#x", false);
        check_address("https://me:pw@a/mcp", false);
        check_address("a/mcp", false);
        check_url("https://a b/", false);
        check_url("https://a/v1/chat/completions", false);
        check_url("https://a/chat/completions/", false);
    }

    #[track_caller]
    fn check_loopback(text: &str, want: bool) {
        assert_eq!(is_loopback(&text.parse().unwrap_or_default()), want, "{text}");
    }

    #[test]
    fn loopback_is_known_by_every_name() {
        check_loopback("http://127.0.0.1:1/v1", true);
        check_loopback("http://127.9.9.9/v1", true);
        check_loopback("http://[::1]:1/v1", true);
        check_loopback("http://LocalHost/v1", true);
        check_loopback("http://127.0.0.1.example/v1", false);
        check_loopback("http://10.0.0.1/v1", false);
    }

    #[test]
    fn headers_that_decide_the_request_are_refused() {
        assert_eq!(wrong_with_header("X-Title", "beige"), None);
        for (name, value) in
            [("Host", "a"), ("content-length", "1"), ("a b", "x"), ("", "x"), ("X", "a\nb")]
        {
            assert!(wrong_with_header(name, value).is_some(), "{name}");
        }
    }
}
