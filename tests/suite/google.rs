//! Turns with a model that speaks `generateContent`: what goes to it, what
//! comes of its answers, and its own ways to fail.

use serde_json::{Value, json};

use crate::support::{
    Answer, Asked, Dialect, ModelServer, Part, Said, Stop, World, google_end, google_piece,
    google_signature, provider_in, some_world,
};

const NEW: &str = "gemini-3-pro-preview";

/// A world whose gateway runs and asks that server for that model.
fn serving(server: &ModelServer, model: &str, fields: &str) -> World {
    let world = some_world();
    let agent = format!(
        "a: {{ model: {{ provider: 'p', model: '{model}', thinkingLevel: 'high' }}, \
         tools: ['notes'], sandbox: {{ runtime: '{}', network: 'none' }} }},",
        world.runtime.name()
    );
    let provider = provider_in(Dialect::Google, server.port(), fields);
    world.write_config_of(&provider, &agent, "");
    world.start_gateway();
    world
}

fn says(text: &str) -> Answer {
    Dialect::Google.answer(&Said::text(text))
}

fn part(part: Value) -> Value {
    google_piece(&json!([part]))
}

fn runs(id: &str, command: &str) -> Value {
    json!({"functionCall": {"id": id, "name": "exec", "args": {"command": command}}})
}

fn signed(mut part: Value, of: &str) -> Value {
    part["thoughtSignature"] = json!(google_signature(of));
    part
}

/// The last answer of the model in a request.
fn last_answer(asked: &Asked) -> Value {
    let contents = asked.body["contents"].as_array().expect("contents");
    let last = contents.iter().rev().find(|it| it["role"] == "model");
    last.expect("an answer")["parts"].clone()
}

/// The parts of a request's last content.
fn last_parts(asked: &Asked) -> Vec<Value> {
    let last = asked.body["contents"].as_array().and_then(|it| it.last());
    last.expect("contents")["parts"].as_array().expect("parts").clone()
}

fn refusal(status: u16, message: &str, details: &Value) -> Answer {
    let error = json!({"error": {"code": status, "message": message,
        "status": "INVALID_ARGUMENT", "details": details}});
    Answer::status(status, &json!([error]).to_string())
}

#[test]
fn a_model_is_asked_in_its_words_and_its_answer_is_stored() {
    let usage = json!({"usageMetadata": {"promptTokenCount": "100", "cachedContentTokenCount": 60,
        "candidatesTokenCount": 6, "thoughtsTokenCount": 20, "totalTokenCount": 126}});
    let server = ModelServer::playing([
        Answer::stream()
            .comment("ka")
            .event(&part(json!({"text": "hm", "thought": true})))
            .event(&part(json!({"text": "The 那 "})))
            .event(&part(json!({"text": "is é."})))
            .event(&google_end("STOP"))
            .event(&usage)
            .crlf(),
        says("More."),
    ]);
    let facts = format!("models: {{ '{NEW}': {{ maxTokens: 9000, reasoning: true }} }},");
    let world = serving(&server, NEW, &facts);
    let told = world.events("api:1", "go");
    let pieces = told.iter().filter(|it| it["type"] == "text_delta");
    assert_eq!(
        pieces.map(|it| it["delta"].as_str().unwrap_or("?")).collect::<String>(),
        "The 那 is é."
    );
    assert!(
        told.iter().any(|it| it["type"] == "thinking_delta" && it["delta"] == "hm"),
        "{told:?}"
    );
    assert_eq!(world.answer("api:1", "and"), "More.");

    let asked = server.asked();
    let path = format!("/v1beta/models/{NEW}:streamGenerateContent?alt=sse");
    assert_eq!(asked[0].head.path, path);
    let thinking = json!({"thinkingLevel": "HIGH", "includeThoughts": true});
    let config = json!({"maxOutputTokens": 9000, "thinkingConfig": thinking});
    assert_eq!(asked[0].body["generationConfig"], config);
    let names = asked[0].body["tools"][0]["functionDeclarations"].as_array().expect("tools");
    let names: Vec<&Value> = names.iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["read", "write", "patch", "exec"]);
    let want = ["user: go", "assistant: The 那 is é.", "user: and"];
    assert_eq!(asked[1].said()[1..], want);

    let stored = &world.stored("api:1")[1];
    let named = json!([stored["api"], stored["provider"], stored["model"], stored["stopReason"]]);
    assert_eq!(named, json!(["google-generative-ai", "p", NEW, "stop"]));
    let usage = &stored["usage"];
    let counts = json!([usage["input"], usage["output"], usage["cacheRead"], usage["totalTokens"]]);
    assert_eq!(counts, json!([40, 26, 60, 126]));
}

/// The provider refuses the second request if the signatures are not where it
/// put them.
#[test]
fn signatures_go_back_on_the_parts_they_came_with() {
    let call = signed(runs("c1", "echo one"), "call");
    let text = signed(json!({"text": "I look."}), "text");
    let want = json!([text, call, runs("c2", "echo two")]);
    let server = ModelServer::answering(move |asked: &Asked| match asked.answers() {
        0 => Answer::stream()
            .event(&part(json!({"text": "hm", "thought": true})))
            .event(&part(json!({"text": "I "})))
            .event(&part(json!({"text": "look."})))
            .event(&part(signed(json!({"text": ""}), "text")))
            .event(&google_piece(&json!([call, runs("c2", "echo two")])))
            .event(&google_end("STOP")),
        1 if last_answer(asked) == want => says("Done."),
        _ => refusal(400, "Function call is missing a thought_signature.", &json!([])),
    });
    let world = serving(&server, NEW, "");
    assert_eq!(world.answer("api:1", "go"), "Done.");
    assert_eq!(server.asked().len(), 2);
    // Also when the session is read from its file.
    world.run(["gateway", "restart"]).expect(0);
    server.play([says("More.")]);
    assert_eq!(world.answer("api:1", "and"), "More.");
    let first = server.last().body["contents"][1]["parts"][1]["thoughtSignature"].clone();
    assert_eq!(first, google_signature("call"));
}

/// As this provider has it, the signature of a thought stands on what follows.
#[test]
fn a_thought_is_signed_by_what_stands_behind_it() {
    let call = |id: &str| {
        let arguments = json!({"command": "echo hi"}).to_string();
        Part::Call(id.into(), "exec".into(), arguments)
    };
    let thinking = |of: &str| Part::Thinking("hm".into(), Some(of.into()));
    let answers = [
        Said::new([thinking("one"), Part::Text("I look.".into()), call("c1"), call("c2")]),
        Said::new([thinking("two"), call("c3")]),
        Said::new([Part::Text("Done.".into()), thinking("three")]),
        Said::text("More."),
    ];
    let server = ModelServer::playing(answers.iter().map(|it| Dialect::Google.answer(it)));
    let world = serving(&server, NEW, "");
    assert_eq!(world.answer("api:1", "go"), "Done.");
    assert_eq!(world.answer("api:1", "and"), "More.");
    let contents = server.last().body["contents"].clone();
    let signatures = |place: usize| {
        let parts = contents[place]["parts"].as_array().expect("parts");
        parts.iter().map(|it| it["thoughtSignature"].clone()).collect::<Vec<Value>>()
    };
    let signed = |of: &str| json!(google_signature(of));
    assert_eq!(signatures(1), [signed("one"), signed("c1"), Value::Null]);
    assert_eq!(signatures(3), [signed("two")]);
    assert_eq!(signatures(5), [Value::Null, signed("three")]);
}

#[test]
fn calls_run_and_their_results_come_back_together_and_in_order() {
    let read = json!({"functionCall": {"name": "read", "args": {"path": "missing"}}});
    let server = ModelServer::playing([
        Answer::stream()
            .event(&google_piece(&json!([signed(runs("c1", "echo one"), "c"), read])))
            .event(&part(runs("c2", "echo three; exit 3")))
            .event(&google_end("STOP")),
        says("Done."),
    ]);
    let world = serving(&server, NEW, "");
    assert_eq!(world.answer("api:1", "go"), "Done.");
    let said = server.last().said();
    assert_eq!(said[3], "tool: Exit code: 0\none\n");
    assert!(said[4].starts_with("tool: Error: ") && said[4].contains("missing"), "{said:?}");
    assert_eq!(said[5..], ["tool: Error: Exit code: 3\nthree\n"]);
    let results = last_parts(&server.last());
    let ids: Vec<&Value> = results.iter().map(|it| &it["functionResponse"]["id"]).collect();
    let is_minted = ids[1].as_str().is_some_and(|it| it.len() == 9);
    assert!(ids[0] == "c1" && is_minted && ids[2] == "c2", "{ids:?}");
}

#[test]
fn images_are_shown_within_a_result_or_behind_it() {
    for (model, is_within) in [(NEW, true), ("gemini-2.5-flash", false)] {
        let read = json!({"functionCall": {"id": "c1", "name": "read", "args": {"path": "a.png"}}});
        let server = ModelServer::playing([
            Answer::stream().event(&part(signed(read, "c"))).event(&google_end("STOP")),
            says("A picture."),
        ]);
        let facts = format!("models: {{ '{model}': {{ input: ['text', 'image'] }} }},");
        let world = serving(&server, model, &facts);
        let picture = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0";
        std::fs::create_dir_all(world.workspace("a")).expect("a workspace");
        std::fs::write(world.workspace("a").join("a.png"), picture).expect("written");
        assert_eq!(world.answer("api:1", "look"), "A picture.");
        let parts = last_parts(&server.last());
        let within = &parts[0]["functionResponse"]["parts"][0]["inlineData"]["mimeType"];
        let behind = parts.last().map(|it| it["inlineData"]["mimeType"].clone());
        let shown = if is_within { within.clone() } else { behind.unwrap_or_default() };
        assert_eq!(shown, "image/png", "{parts:?}");
        assert_eq!(within.is_null(), !is_within, "{parts:?}");
    }
}

#[test]
fn a_signature_that_is_stale_is_left_out_and_asked_without_once() {
    let server = ModelServer::answering(|asked: &Asked| match asked.answers() {
        0 => Answer::stream()
            .event(&part(signed(runs("c1", "echo one"), "old")))
            .event(&google_end("STOP")),
        _ if asked.body.to_string().contains(&google_signature("old")) => {
            refusal(400, "Corrupted thought signature.", &json!([]))
        }
        _ => says("Done."),
    });
    let world = serving(&server, NEW, "");
    assert_eq!(world.answer("api:1", "go"), "Done.");
    let asked = server.asked();
    assert_eq!(asked.len(), 3, "one call, one refusal, one without");
    let stand_in = &last_answer(&asked[2])[0]["thoughtSignature"];
    assert_eq!(stand_in, "skip_thought_signature_validator");
}

/// A prompt whose first model call is answered by that, and each further one
/// by a plain answer: what is stored of the first.
#[track_caller]
fn first_stored(answer: Answer) -> Value {
    let mut first = Some(answer);
    let server = ModelServer::answering(move |_| first.take().unwrap_or_else(|| says("fine")));
    let world = serving(&server, NEW, "");
    world.prompt("api:1", "go");
    let stored = world.stored("api:1")[1].clone();
    assert!(!world.workspace("a").join("ran").exists(), "a call of it was run");
    let roles = world.stored("api:1");
    assert!(roles.iter().all(|it| it["role"] != "toolResult"), "{roles:?}");
    stored
}

#[track_caller]
fn check_fault(answer: Answer, so_far: &str, words: &[&str]) {
    let stored = first_stored(answer);
    assert_eq!(stored["stopReason"], "error", "{stored}");
    let texts = stored["content"].as_array().expect("content").iter();
    let text: String = texts.filter_map(|it| it["text"].as_str()).collect();
    assert_eq!(text, so_far, "{stored}");
    let message = stored["errorMessage"].as_str().expect("a message");
    for word in words {
        assert!(message.contains(word), "{message:?} does not say {word:?}");
    }
}

#[test]
fn what_breaks_an_answer_is_told_and_runs_nothing() {
    let begun = || {
        Answer::stream()
            .event(&part(json!({"text": "half"})))
            .event(&part(signed(runs("c1", "echo > ran"), "c")))
    };
    check_fault(begun(), "half", &["`p`", "cut off"]);
    check_fault(begun().cut(), "half", &["`p`"]);
    check_fault(begun().reset(), "half", &["`p`"]);
    check_fault(begun().event(&google_end("MALFORMED_FUNCTION_CALL")), "half", &["tool call"]);
    check_fault(begun().event(&google_end("RECITATION")), "half", &["withheld", "RECITATION"]);
    check_fault(begun().data("{\"candidates\":[{"), "half", &["not valid JSON"]);
    let error = json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota.",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "90s"}]}});
    check_fault(begun().event(&error), "half", &["Quota", "90 s"]);
}

#[test]
fn a_refusal_is_told_in_words() {
    let blocked = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}});
    check_fault(Answer::stream().event(&blocked), "", &["refused", "PROHIBITED_CONTENT"]);
    let reason = json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "API_KEY_INVALID", "domain": "googleapis.com"}]);
    check_fault(refusal(400, "API key not valid.", &reason), "", &["llm.providers.p.apiKey"]);
}

#[test]
fn an_answer_may_be_cut_into_pieces_anywhere() {
    let text = "那 é 🛶 \"quoted\\\"";
    let said = Said {
        parts: vec![Part::Thinking("hm 那".into(), Some("sig".into())), Part::Text(text.into())],
        stop: Stop::End,
        input: 7,
        output: 3,
    };
    let whole = || Dialect::Google.answer(&said);
    let server =
        ModelServer::playing([whole().in_pieces(1), whole().in_pieces(7), whole().until_close()]);
    let gate = server.gate();
    let line = format!("data: {}\n\n", part(json!({"text": "那"})));
    let at = line.find('那').expect("a character") + 1;
    let (before, after) = line.as_bytes().split_at(at);
    server.play([Answer::stream()
        .bytes(before)
        .hold(&gate)
        .bytes(after)
        .event(&google_end("STOP"))]);
    let world = serving(&server, NEW, "");
    for number in 0..3 {
        assert_eq!(world.answer(&format!("api:{number}"), "go"), text);
    }
    let stream = world.stream("api:9", "go");
    gate.wait_held(1);
    gate.open();
    let told = stream.rest();
    assert_eq!(told.last().expect("an event")["response"], "那");
}

#[test]
fn an_answer_in_one_piece_or_as_a_list_reads_too() {
    let mut whole = part(json!({"text": "All of it."}));
    whole["candidates"][0]["finishReason"] = json!("STOP");
    let list =
        json!([part(json!({"text": "All "})), part(json!({"text": "of it."})), google_end("STOP")]);
    let server = ModelServer::playing([
        Answer::status(200, &whole.to_string()),
        Answer::status(200, &format!("{list:#}")),
    ]);
    let world = serving(&server, NEW, "");
    for number in 0..2 {
        assert_eq!(world.answer(&format!("api:{number}"), "go"), "All of it.");
    }
}
