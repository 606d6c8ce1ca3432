//! Which route a request means: a pure function of method and target. Names
//! are decoded once and looked up nowhere here; that an agent exists is for
//! the gateway to say.

use super::gateway::Quick;
use crate::channel::http::answer::Answer;

/// A route with what its path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::channel::http) enum Route {
    /// Of the gateway itself.
    Quick(Quick),
    /// `GET /api/audit`
    Audit,
    /// `GET /api/usage`
    Usage,
    /// `POST /api/chat/stream`
    ChatStream,
    /// `POST /api/agents/:name/exec`
    Exec(String),
    /// `POST /api/agents/:name/exec/stream`
    ExecStream(String),
    /// `POST /api/agents/:name/prompt`
    Prompt(String),
    /// `POST /api/agents/:name/prompt/stream`
    PromptStream(String),
    /// `POST /api/agents/:name/sessions/:key/abort`
    Abort(String, String),
    /// `POST /api/agents/:name/sessions/:key/steer`
    Steer(String, String),
    /// `POST /api/agents/:name/sessions/:key/compact`
    Compact(String, String),
    /// Below `/api/agents/:name/hooks`
    Hook(String, HookRoute),
    /// Below `/api/agents/:name/sessions`
    Sessions(String, SessionRoute),
}

/// What plugins are asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::channel::http) enum HookRoute {
    /// `POST …/hooks/pre-prompt`
    PrePrompt,
    /// `POST …/hooks/post-response`
    PostResponse,
    /// `POST …/hooks/session-created`
    SessionCreated,
    /// `POST …/hooks/session-disposed`
    SessionDisposed,
}

/// A route of an agent's sessions, with the key or id that its path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::channel::http) enum SessionRoute {
    /// `GET …/sessions`
    List,
    /// `POST …/sessions/new`
    New,
    /// `POST …/sessions/resume`
    Resume,
    /// `GET …/sessions/:key`
    Show(String),
    /// `DELETE …/sessions/:key`
    Remove(String),
    /// `PATCH …/sessions/:key/name`
    Name(String),
    /// `PATCH …/sessions/:key/model`
    Model(String),
}

/// The route, or 404, or 405 with what is allowed, or 400 for a path that is
/// not percent-encoded UTF-8.
pub(in crate::channel::http) fn route(method: &str, target: &str) -> Result<Route, Answer> {
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    let parts = path.split('/').skip(1).map(decoded).collect::<Option<Vec<_>>>();
    let parts = parts.ok_or_else(|| Answer::error(400, "the path is not percent-encoded UTF-8"))?;
    let mut found = find_of_sessions(&parts);
    found.extend(find(&parts));
    if found.is_empty() {
        return Err(Answer::error(404, "there is no such route"));
    }
    let allowed = found.iter().map(|it| it.1).collect::<Vec<_>>().join(", ");
    let route = found.into_iter().find(|it| it.1 == method);
    route.map(|it| it.0).ok_or_else(|| {
        Answer::error(405, format!("this route is for {allowed}")).with("Allow", allowed)
    })
}

/// The values of a query, decoded, `+` for a blank; `None` if it is malformed.
pub(super) fn query(target: &str) -> Option<Vec<(String, String)>> {
    let Some((_, query)) = target.split_once('?') else { return Some(Vec::new()) };
    let pairs = query.split('&').filter(|it| !it.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decoded(&name.replace('+', " "))?, decoded(&value.replace('+', " "))?))
    });
    pairs.collect()
}

fn find(parts: &[String]) -> Option<(Route, &'static str)> {
    let parts = parts.iter().map(String::as_str).collect::<Vec<_>>();
    match parts.as_slice() {
        ["metrics"] => Some((Route::Quick(Quick::Metrics), "GET")),
        ["api", "health"] => Some((Route::Quick(Quick::Health), "GET")),
        ["api", "config"] => Some((Route::Quick(Quick::Config), "GET")),
        ["api", "gateway", "restart"] => Some((Route::Quick(Quick::Restart), "POST")),
        ["api", "agents"] => Some((Route::Quick(Quick::Agents), "GET")),
        ["api", "audit"] => Some((Route::Audit, "GET")),
        ["api", "usage"] => Some((Route::Usage, "GET")),
        ["api", "chat", "stream"] => Some((Route::ChatStream, "POST")),
        ["api", "agents", name, rest @ ..] => find_of_agent((*name).to_owned(), rest),
        _ => None,
    }
}

fn find_of_agent(name: String, rest: &[&str]) -> Option<(Route, &'static str)> {
    match rest {
        ["exec"] => Some((Route::Exec(name), "POST")),
        ["exec", "stream"] => Some((Route::ExecStream(name), "POST")),
        ["prompt"] => Some((Route::Prompt(name), "POST")),
        ["prompt", "stream"] => Some((Route::PromptStream(name), "POST")),
        ["models"] => Some((Route::Quick(Quick::Models(name)), "GET")),
        ["hooks", hook] => Some((Route::Hook(name, hook_of(hook)?), "POST")),
        ["sessions", key, "abort"] => Some((Route::Abort(name, (*key).to_owned()), "POST")),
        ["sessions", key, "steer"] => Some((Route::Steer(name, (*key).to_owned()), "POST")),
        ["sessions", key, "compact"] => Some((Route::Compact(name, (*key).to_owned()), "POST")),
        _ => None,
    }
}

fn hook_of(name: &str) -> Option<HookRoute> {
    match name {
        "pre-prompt" => Some(HookRoute::PrePrompt),
        "post-response" => Some(HookRoute::PostResponse),
        "session-created" => Some(HookRoute::SessionCreated),
        "session-disposed" => Some(HookRoute::SessionDisposed),
        _ => None,
    }
}

/// One path may have several methods here.
fn find_of_sessions(parts: &[String]) -> Vec<(Route, &'static str)> {
    let parts = parts.iter().map(String::as_str).collect::<Vec<_>>();
    let ["api", "agents", agent, "sessions", rest @ ..] = parts.as_slice() else {
        return Vec::new();
    };
    let of = |session: &str| session.to_owned();
    let routes = match rest {
        [] => vec![(SessionRoute::List, "GET")],
        // A key of that name can be shown and removed all the same.
        ["new"] => vec![(SessionRoute::New, "POST")],
        ["resume"] => vec![(SessionRoute::Resume, "POST")],
        [key, "name"] => vec![(SessionRoute::Name(of(key)), "PATCH")],
        [key, "model"] => vec![(SessionRoute::Model(of(key)), "PATCH")],
        _ => Vec::new(),
    };
    let of_key = match rest {
        [key] if !key.is_empty() => {
            vec![(SessionRoute::Show(of(key)), "GET"), (SessionRoute::Remove(of(key)), "DELETE")]
        }
        _ => Vec::new(),
    };
    let all = routes.into_iter().chain(of_key);
    all.map(|(route, method)| (Route::Sessions((*agent).to_owned(), route), method)).collect()
}

/// Percent-decoding, once; `None` for a broken escape or what is not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        bytes.push(hex_digit(digits[0])? * 16 + hex_digit(digits[1])?);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|it| u8::try_from(it).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, target: &str, want: Result<Route, u16>) {
        assert_eq!(route(method, target).map_err(|it| it.status), want, "{method} {target}");
    }

    #[test]
    fn routes_are_found_by_method_and_path() {
        check("GET", "/api/health", Ok(Route::Quick(Quick::Health)));
        check("GET", "/api/health?x=1", Ok(Route::Quick(Quick::Health)));
        check("GET", "/metrics", Ok(Route::Quick(Quick::Metrics)));
        check("POST", "/api/gateway/restart", Ok(Route::Quick(Quick::Restart)));
        check("GET", "/api/agents/a/models", Ok(Route::Quick(Quick::Models("a".into()))));
        let abort = Route::Abort("a".into(), "tui:a/b:1".into());
        check("POST", "/api/agents/a/sessions/tui%3Aa%2Fb%3A1/abort", Ok(abort));
        let steer = Route::Steer("a".into(), "abort".into());
        check("POST", "/api/agents/a/sessions/abort/steer", Ok(steer));
        let compact = Route::Compact("a".into(), "k".into());
        check("POST", "/api/agents/a/sessions/k/compact", Ok(compact));
        check("GET", "/api/agents/a/sessions/k/compact", Err(405));
        let hook = Route::Hook("a".into(), HookRoute::PostResponse);
        check("POST", "/api/agents/a/hooks/post-response", Ok(hook));
        check("GET", "/api/agents/a/hooks/post-response", Err(405));
        check("POST", "/api/agents/a/hooks/pre-tool", Err(404));
        check("GET", "/api/audit?denied", Ok(Route::Audit));
        check("GET", "/api/usage?by=day", Ok(Route::Usage));
        check("POST", "/api/chat/stream", Ok(Route::ChatStream));
        check("POST", "/api/agents/a/exec", Ok(Route::Exec("a".into())));
        check("POST", "/api/agents/a/prompt/stream", Ok(Route::PromptStream("a".into())));
        check("POST", "/api/agents/constructor/exec", Ok(Route::Exec("constructor".into())));
    }

    #[test]
    fn other_methods_are_told_which_one_is_right() {
        for method in ["POST", "HEAD", "get", "DELETE"] {
            check(method, "/api/health", Err(405));
        }
        let allow = route("GET", "/api/agents/a/exec").map_err(|it| it.further);
        assert_eq!(allow, Err(Some(("Allow", "POST".into()))));
    }

    #[test]
    fn whatever_is_not_a_route_is_not_found() {
        for target in [
            "/",
            "//api/health",
            "/api/health/",
            "/api//health",
            "/api/agents/a",
            "/api/agents/a/zzz",
            "/api/agents/a/../../health",
            "/api/agents/a%2Fexec",
            "/nope",
        ] {
            check("GET", target, Err(404));
        }
    }

    #[test]
    fn names_are_decoded_once() {
        check("POST", "/api/agents/a%2Fb/exec", Ok(Route::Exec("a/b".into())));
        check("POST", "/api/agents/%252F/exec", Ok(Route::Exec("%2F".into())));
        for broken in ["%", "%4", "%zz", "%+1", "%E0%A4%A", "%ff"] {
            check("POST", &format!("/api/agents/{broken}/exec"), Err(400));
        }
    }

    #[test]
    fn the_routes_of_sessions_have_several_methods() {
        let of = |route| Ok(Route::Sessions("a".into(), route));
        check("GET", "/api/agents/a/sessions?all", of(SessionRoute::List));
        check("POST", "/api/agents/a/sessions/new", of(SessionRoute::New));
        check("GET", "/api/agents/a/sessions/new", of(SessionRoute::Show("new".into())));
        check("POST", "/api/agents/a/sessions/resume", of(SessionRoute::Resume));
        let key = || "tui:a/b:é %".to_owned();
        let path = "/api/agents/a/sessions/tui%3Aa%2Fb%3A%C3%A9%20%25";
        check("GET", path, of(SessionRoute::Show(key())));
        check("DELETE", path, of(SessionRoute::Remove(key())));
        check("PATCH", &format!("{path}/name"), of(SessionRoute::Name(key())));
        check("PATCH", &format!("{path}/model"), of(SessionRoute::Model(key())));
        check("POST", path, Err(405));
        check("GET", &format!("{path}/name"), Err(405));
        check("GET", "/api/agents/a/sessions/", Err(404));
        check("GET", "/api/agents/a/sessions/k/other", Err(404));
        let allow = route("PUT", path).map_err(|it| it.further);
        assert_eq!(allow, Err(Some(("Allow", "GET, DELETE".into()))));
    }

    #[test]
    fn a_query_is_pairs() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let want = vec![pair("agent", "a b&c"), pair("denied", "")];
        assert_eq!(query("/api/audit?agent=a+b%26c&&denied"), Some(want));
        assert_eq!(query("/api/audit"), Some(Vec::new()));
        assert_eq!(query("/api/audit?a=%"), None);
    }
}
