//! Providers and models: what their fields mean, what is refused.

use super::*;

#[test]
fn a_provider_that_no_agent_refers_to_stops_nothing() {
    check_accepted(
        "/llm/providers/other",
        json!({"api": "anthropic-messages", "apiKey": "${UNSET}", "x": 1, "models": 3}),
    );
    check_accepted("/agents/a/model/provider", json!("${PROVIDER}"));
    check_refused("/llm/providers/demo/cassette", json!("${UNSET}"), "UNSET is not set");
}

#[test]
fn a_provider_in_use_plays_back() {
    check_refused("/llm/providers/demo", json!({"api": "replay"}), "needs a `cassette`");
    check_refused("/llm/providers/demo", json!({}), "baseUrl: this field is missing");
    for (name, value) in [
        ("apiKey", json!("")),
        ("baseUrl", json!("http://x")),
        ("headers", json!({})),
        ("timeouts", json!({})),
        ("proxy", json!("http://p:1")),
        ("caFile", json!("c")),
    ] {
        let provider = json!({"api": "replay", "cassette": "c", name: value});
        check_refused("/llm/providers/demo", provider, "connects to nothing");
    }
    check_refused("/llm/providers/demo/api", json!("repaly"), "did you mean `replay`?");
    check_refused("/llm/providers/demo/record", json!(true), "says nothing new to record");
    check_refused(
        "/agents/a/model/provider",
        json!("x"),
        "there is no provider `x`; llm.providers holds demo",
    );
}

#[test]
fn a_fallback_is_checked_as_the_model_is() {
    let check = |fallbacks: Value, what: &str| {
        let config = with("/agents/a/fallbackModels", fallbacks);
        let findings = Case::new().findings(config.to_string().as_bytes());
        assert!(findings.contains(what), "{what:?} is not in {findings}");
    };
    let other = json!({"provider": "demo", "model": "n"});
    check(
        json!([other, {"provider": "dmeo", "model": "m"}]),
        "agents.a.fallbackModels[1].provider: there is no provider `dmeo`; did you mean `demo`?",
    );
    check(json!([{"provider": "x", "model": "m"}]), "no provider `x`; llm.providers holds demo");
    let same = json!({"provider": "demo", "model": "m", "thinkingLevel": "high"});
    check(
        json!([other, same]),
        "warning: agents.a.fallbackModels[1]: `demo/m` is agents.a.model already",
    );
    check(
        json!([other, other]),
        "warning: agents.a.fallbackModels[1]: `demo/n` is agents.a.fallbackModels[0] already",
    );
    check_accepted("/agents/a/fallbackModels", json!([other]));
}

#[test]
fn a_url_that_lacks_its_scheme_is_told_with_it() {
    for (given, meant) in [
        ("127.0.0.1:28181/v1", "write `http://127.0.0.1:28181/v1`"),
        ("localhost:28181/v1", "write `http://localhost:28181/v1`"),
        ("localhost", "write `http://localhost`"),
        ("[::1]:80/v1", "write `http://[::1]:80/v1`"),
        ("10.0.0.7:8080", "write `http://10.0.0.7:8080`"),
        ("//api.example.org/v1", "write `https://api.example.org/v1`"),
        ("api.example.org/v1", "write `https://api.example.org/v1`"),
        ("ftp://example.org/v1", "must be a URL that begins with http:// or https://"),
        ("http:///v1", "must be a URL"),
        ("http:/127.0.0.1/v1", "must be a URL"),
        ("a b", "must be a URL that begins with http:// or https://"),
    ] {
        check_server_refused(json!({"baseUrl": given}), meant);
    }
    let config = with("/llm/providers/demo", json!({"baseUrl": "me:pass@host/v1"}));
    let findings = Case::new().findings(config.to_string().as_bytes());
    assert!(findings.contains("must ") && !findings.contains("pass@"), "{findings}");
}

/// A provider that is a server, with these fields beside its `baseUrl`.
fn server(fields: Value) -> Value {
    let mut provider = json!({"baseUrl": "http://127.0.0.1:1/v1/"});
    for (name, value) in fields.as_object().into_iter().flatten() {
        provider[name] = value.clone();
    }
    with("/llm/providers/demo", provider)
}

#[track_caller]
fn endpoint_of(config: &Value) -> crate::config::Endpoint {
    let config = Case::new().config(config);
    let Reach::Endpoint(endpoint) = config.providers["demo"].reach.clone() else {
        panic!("the provider is a server");
    };
    *endpoint
}

#[track_caller]
fn check_server_refused(fields: Value, what: &str) {
    let findings = Case::new().findings(server(fields).to_string().as_bytes());
    assert!(findings.contains(what), "{findings}");
}

#[test]
fn a_server_is_all_defaults_but_its_url() {
    let endpoint = endpoint_of(&server(json!({})));
    assert_eq!(endpoint.base_url, "http://127.0.0.1:1/v1");
    assert!(endpoint.api_key.is_none() && endpoint.headers.is_empty());
    assert!(endpoint.proxy.is_none() && endpoint.ca_file.is_none());
    let seconds = |it: Duration| it.as_secs();
    let Timeouts { connect, first_byte, idle } = endpoint.timeouts;
    assert_eq!([connect, first_byte, idle].map(seconds), [10, 120, 120]);
    let config = Case::new().config(&server(json!({})));
    let provider = &config.providers["demo"];
    assert_eq!((provider.api, provider.concurrency), (Api::OpenAiCompletions, None));
    assert_eq!(config.agents["a"].limits.inactivity, Duration::from_secs(600));
}

#[test]
fn a_server_is_what_the_file_says() {
    let facts = json!({"contextWindow": 1000, "maxTokens": 10, "input": ["text", "image"],
        "cost": {"input": 1, "output": 2.5}});
    let given = server(json!({
        "apiKey": " key-1234 ",
        "headers": {"X-Title": "t"},
        "timeouts": {"idleSeconds": 0.5},
        "concurrency": 5,
        "models": {"m": facts},
    }));
    let endpoint = endpoint_of(&given);
    assert_eq!(endpoint.api_key.as_ref().map(Secret::expose), Some("key-1234"));
    assert_eq!(endpoint.headers[0].0, "X-Title");
    assert_eq!(endpoint.timeouts.idle, Duration::from_millis(500));
    let config = Case::new().config(&given);
    let provider = &config.providers["demo"];
    assert_eq!(provider.concurrency.map(std::num::NonZero::get), Some(5));
    // A cache whose price is not said saves nothing.
    let cost = Price { input: 1.0, output: 2.5, cache_read: 1.0, cache_write: 1.0, long: None };
    let want = ModelFacts {
        context_window: Some(1000),
        max_tokens: Some(10),
        images: Some(true),
        cost: Some(cost),
        ..ModelFacts::default()
    };
    assert_eq!(provider.models["m"], want);
    let unlimited = Case::new().config(&server(json!({"concurrency": -1})));
    assert_eq!(unlimited.providers["demo"].concurrency, None);
}

#[test]
fn what_cannot_be_a_server_is_refused() {
    check_server_refused(json!({"baseUrl": "127.0.0.1"}), "llm.providers.demo.baseUrl: ");
    check_server_refused(
        json!({"models": {"m": {"cost": {"input": 1}}}}),
        "models.m.cost.output: this field is missing",
    );
    check_server_refused(json!({"concurrency": 0}), "must be 1 or more, or -1 for no limit");
    check_server_refused(json!({"concurrency": -2}), "must be from -1 to 10000");
    check_server_refused(json!({"apiKey": "a\nb"}), "llm.providers.demo.apiKey: a key cannot");
    check_server_refused(json!({"headers": {"Host": "x"}}), "is set by the request itself");
    check_server_refused(json!({"caFile": "./none.pem"}), "none.pem is not a file");
    check_server_refused(json!({"cassette": "c"}), "only a `replay` provider, or one with");
    check_server_refused(json!({"record": true}), "needs a `cassette` to append to");
    check_server_refused(json!({"timeouts": {"idleSeconds": 0}}), "more than 0");
    check_server_refused(
        json!({"baseUrl": "https://a/v1", "proxy": "ftp://p"}),
        "llm.providers.demo.proxy: a proxy must be",
    );
    check_refused("/llm/providers", json!({"anthropic": {}}), "llm.providers");
}

#[test]
fn known_providers_need_only_a_key() {
    let mut config = sample();
    config["llm"]["providers"] = json!({"groq": {"apiKey": "key-12345"}});
    config["agents"]["a"]["model"]["provider"] = json!("groq");
    let config = Case::new().config(&config);
    let Reach::Endpoint(endpoint) = &config.providers["groq"].reach else { panic!("a server") };
    assert!(endpoint.base_url.starts_with("https://"));
    for (name, api) in [("anthropic", Api::AnthropicMessages), ("google", Api::GoogleGenerativeAi)]
    {
        let mut config = sample();
        config["llm"]["providers"] = json!({name: {"apiKey": "key-12345"}});
        config["agents"]["a"]["model"]["provider"] = json!(name);
        assert_eq!(Case::new().config(&config).providers[name].api, api);
    }
}

#[test]
fn an_agents_models_are_in_their_order_and_each_says_how_it_is_used() {
    let mut config = sample();
    config["agents"]["a"]["model"] = json!({"provider": "demo", "model": "m",
        "thinkingLevel": "low", "compactionThreshold": 9000});
    config["agents"]["a"]["fallbackModels"] = json!([{"provider": "demo", "model": "n"}]);
    config["agents"]["a"]["limits"] =
        json!({"maxTurnSeconds": 2, "maxTurnTokens": 0, "maxTurnCostUsd": 0.5});
    let agent = &Case::new().config(&config).agents["a"];
    let used: Vec<_> = agent
        .choices()
        .map(|it| (it.model.to_string(), it.thinking, it.compaction_threshold))
        .collect();
    let want = [
        ("demo/m".to_owned(), ThinkingLevel::Low, Some(9000)),
        ("demo/n".to_owned(), ThinkingLevel::Off, None),
    ];
    assert_eq!(used, want);
    assert_eq!(agent.limits.max_turn_time, Some(Duration::from_secs(2)));
    assert_eq!(agent.limits.max_turn_tokens, None, "0 is no bound");
    assert_eq!(agent.limits.max_turn_cost, Some(0.5));
    config["agents"]["a"]["limits"] = json!({"maxTurnSeconds": 0, "maxTurnCostUsd": 0});
    assert_eq!(Case::new().config(&config).agents["a"].limits.max_turn_time, None);
}

#[test]
fn a_key_that_is_missing_or_seen_on_its_way_is_warned_of() {
    let findings = |fields| Case::new().findings(server(fields).to_string().as_bytes());
    let open = findings(json!({"baseUrl": "http://10.0.0.1/v1", "apiKey": "key-12345"}));
    assert!(open.contains("warning") && open.contains("unencrypted"), "{open}");
    let none = findings(json!({"baseUrl": "https://10.0.0.1/v1"}));
    assert!(none.contains("warning") && none.contains("no `apiKey`"), "{none}");
    assert_eq!(findings(json!({})), "");
}
