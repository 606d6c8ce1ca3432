//! What is known of well-known models without anybody having said it: how much
//! they read and write, what they cost, whether they see images and think.
//! Pure; the facts themselves stand in [`table`]. What is not known stays
//! unknown here, and a price above all: it is that of who sends the bill, so it
//! is known only where a call goes to the model's own vendor, or to a seller
//! that passes the vendor's price on. A server on this machine has none, not
//! even 0.

mod table;

use std::net::IpAddr;

use self::table::TABLE;
use crate::config::{ModelFacts, Price};

/// Who made a model, or hosts it under conditions of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vendor {
    Anthropic,
    OpenAi,
    Google,
    DeepSeek,
    Xai,
    Mistral,
    Moonshot,
    Zai,
    Groq,
    Cerebras,
    /// Whoever likes: weights that run on one's own machine.
    Anyone,
}

/// A well-known model.
#[derive(Debug)]
struct Known {
    vendor: Vendor,
    id: &'static str,
    /// Tokens that it reads at most; 0 is not known.
    context: u64,
    /// Tokens that it writes at most; 0 is not known.
    output: u64,
    price: Option<Price>,
    sees: bool,
    thinks: bool,
}

/// Where vendors sell their models themselves: how the address begins, after
/// its scheme.
const SHOPS: [(&str, Vendor); 11] = [
    ("api.anthropic.com", Vendor::Anthropic),
    ("api.openai.com", Vendor::OpenAi),
    ("generativelanguage.googleapis.com", Vendor::Google),
    ("api.deepseek.com", Vendor::DeepSeek),
    ("api.x.ai", Vendor::Xai),
    ("api.mistral.ai", Vendor::Mistral),
    ("api.moonshot.ai", Vendor::Moonshot),
    ("api.moonshot.cn", Vendor::Moonshot),
    // Its other paths are those of subscriptions, which charge no tokens.
    ("api.z.ai/api/paas", Vendor::Zai),
    ("api.groq.com", Vendor::Groq),
    ("api.cerebras.ai", Vendor::Cerebras),
];

/// A seller of all vendors' models at the vendors' prices.
const RESELLER: &str = "openrouter.ai";

/// How sellers of many vendors' models begin their ids.
const PREFIXES: [(&str, Vendor); 14] = [
    ("anthropic", Vendor::Anthropic),
    ("openai", Vendor::OpenAi),
    ("google", Vendor::Google),
    ("deepseek", Vendor::DeepSeek),
    ("deepseek-ai", Vendor::DeepSeek),
    ("x-ai", Vendor::Xai),
    ("xai", Vendor::Xai),
    ("mistralai", Vendor::Mistral),
    ("mistral", Vendor::Mistral),
    ("moonshotai", Vendor::Moonshot),
    ("z-ai", Vendor::Zai),
    ("zai-org", Vendor::Zai),
    ("qwen", Vendor::Anyone),
    ("meta-llama", Vendor::Anyone),
];

/// Who sends the bill for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seller {
    /// The vendor itself.
    Vendor(Vendor),
    /// Somebody who takes what the vendor takes.
    Reseller,
    /// Somebody else, whose prices are not known.
    Other,
    /// Nobody: a server on this machine, or a cassette.
    Nobody,
}

/// What is known of a model under that id at that base URL, which is empty for
/// one that is played back; nothing of one that is not well known.
pub(super) fn known(base_url: &str, id: &str) -> ModelFacts {
    let seller = seller(base_url);
    let Some((known, is_variant)) = find(seller, id) else { return ModelFacts::default() };
    let is_vendor = seller == Seller::Vendor(known.vendor);
    // Open weights are served with whatever room the server has.
    let has_its_limits = is_vendor || known.vendor.keeps_its_weights();
    let limit = |tokens: u64| Some(tokens).filter(|it| *it > 0 && has_its_limits);
    let has_its_price = match seller {
        Seller::Vendor(_) => is_vendor,
        // A variant (`:free`, `:nitro`) has a price of its own.
        Seller::Reseller => known.vendor.keeps_its_weights() && !is_variant,
        Seller::Other | Seller::Nobody => false,
    };
    ModelFacts {
        context_window: limit(known.context),
        known_max_tokens: limit(known.output),
        reasoning: Some(known.thinks),
        images: Some(known.sees),
        cost: known.price.filter(|_| has_its_price),
        ..ModelFacts::default()
    }
}

/// What a person said, and for the rest what is known.
pub(super) fn completed(said: &ModelFacts, known: ModelFacts) -> ModelFacts {
    ModelFacts {
        name: said.name.clone().or(known.name),
        context_window: said.context_window.or(known.context_window),
        max_tokens: said.max_tokens,
        known_max_tokens: known.known_max_tokens,
        reasoning: said.reasoning.or(known.reasoning),
        images: said.images.or(known.images),
        cost: said.cost.or(known.cost),
        text_tools: said.text_tools,
    }
}

impl Vendor {
    /// Whether its models are what they are wherever they are sold.
    fn keeps_its_weights(self) -> bool {
        matches!(self, Self::Anthropic | Self::OpenAi | Self::Google | Self::Xai)
    }

    /// Whether its ids mean something at other places too.
    fn is_maker(self) -> bool {
        !matches!(self, Self::Groq | Self::Cerebras)
    }
}

fn seller(base_url: &str) -> Seller {
    let Some((_, place)) = base_url.split_once("://") else { return Seller::Nobody };
    let begins = |with: &str| {
        let rest = place.strip_prefix(with);
        rest.is_some_and(|it| it.is_empty() || it.starts_with(['/', ':']))
    };
    if is_loopback(place) {
        return Seller::Nobody;
    }
    if begins(RESELLER) {
        return Seller::Reseller;
    }
    let shop = SHOPS.iter().find(|(address, _)| begins(address));
    shop.map_or(Seller::Other, |(_, vendor)| Seller::Vendor(*vendor))
}

/// Whether a host, with what may stand behind it, is this very machine.
fn is_loopback(place: &str) -> bool {
    let authority = place.split('/').next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
}

/// The model of that id, and whether it is a variant of it that is meant: the
/// very id first, then without a date, then behind a vendor's name.
fn find(seller: Seller, id: &str) -> Option<(&'static Known, bool)> {
    let id = id.strip_prefix("models/").unwrap_or(id);
    let sold = |it: &Known| match seller {
        Seller::Vendor(vendor) => it.vendor == vendor,
        Seller::Reseller => false,
        Seller::Other | Seller::Nobody => it.vendor.is_maker(),
    };
    find_among(&sold, id).or_else(|| {
        let (prefix, rest) = id.rsplit_once('/')?;
        let prefix = prefix.rsplit('/').next().unwrap_or(prefix).to_ascii_lowercase();
        let vendor = PREFIXES.iter().find(|it| it.0 == prefix)?.1;
        find_among(&|it| it.vendor == vendor, rest)
    })
}

fn find_among(sold: &dyn Fn(&Known) -> bool, id: &str) -> Option<(&'static Known, bool)> {
    let plain = id.split_once(':').map_or(id, |(plain, _)| plain);
    let of = |id: &str| TABLE.iter().find(|it| sold(it) && is_same(it.id, id));
    let found = of(id).map(|it| (it, false));
    found.or_else(|| {
        let found = of(plain).or_else(|| of(without_date(plain)?));
        found.map(|it| (it, plain.len() < id.len()))
    })
}

/// The same id: some write `4.5` for another's `4-5`, or capitals.
fn is_same(one: &str, other: &str) -> bool {
    let plain = |it: u8| if it == b'.' { b'-' } else { it.to_ascii_lowercase() };
    one.len() == other.len() && one.bytes().map(plain).eq(other.bytes().map(plain))
}

/// Without `-20251001`, `@20251001`, `-2025-10-01` or `-latest` at its end.
fn without_date(id: &str) -> Option<&str> {
    if let Some(rest) = id.strip_suffix("-latest") {
        return Some(rest);
    }
    let forms = ["-dddddddd", "@dddddddd", "-dddd-dd-dd"];
    forms.into_iter().find_map(|form| {
        let (rest, date) = id.split_at_checked(id.len().checked_sub(form.len())?)?;
        fits(date, form).then_some(rest)
    })
}

/// Whether a text has that form, in which `d` is a digit.
fn fits(text: &str, form: &str) -> bool {
    let same = |(it, form): (u8, u8)| if form == b'd' { it.is_ascii_digit() } else { it == form };
    text.len() == form.len() && text.bytes().zip(form.bytes()).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANTHROPIC: &str = "https://api.anthropic.com";
    const OPENAI: &str = "https://api.openai.com/v1";
    const ROUTER: &str = "https://openrouter.ai/api/v1";

    /// Context, output and the price of reading, as they are known.
    #[track_caller]
    fn check(base_url: &str, id: &str, want: (Option<u64>, Option<u64>, Option<f64>)) {
        let facts = known(base_url, id);
        let got = (facts.context_window, facts.known_max_tokens, facts.cost.map(|it| it.input));
        assert_eq!(got, want, "{id} at {base_url}");
    }

    #[test]
    fn a_model_is_known_by_its_id_with_and_without_a_date() {
        let haiku = (Some(200_000), Some(64_000), Some(1.0));
        check(ANTHROPIC, "claude-haiku-4-5", haiku);
        check(ANTHROPIC, "claude-haiku-4-5-20251001", haiku);
        check(ANTHROPIC, "claude-haiku-4-5@20251001", haiku);
        check(ANTHROPIC, "claude-haiku-4-5-latest", haiku);
        let gpt = (Some(128_000), Some(16_384), Some(2.5));
        check(OPENAI, "gpt-4o", gpt);
        check(OPENAI, "gpt-4o-2024-11-20", gpt);
        let gemini = "https://generativelanguage.googleapis.com/v1beta";
        check(gemini, "models/gemini-2.5-flash", (Some(1_048_576), Some(65_536), Some(0.3)));
    }

    #[test]
    fn an_id_that_only_begins_alike_is_another_model() {
        for id in
            ["claude-haiku-4", "claude-haiku-4-5x", "gpt-4o-mini-x", "", "-20251001", "/", "é"]
        {
            check(OPENAI, id, (None, None, None));
            check(ANTHROPIC, id, (None, None, None));
        }
        check(OPENAI, "gpt-5.4-20", (None, None, None));
    }

    #[test]
    fn a_reseller_names_the_vendor_first() {
        let sonnet = (Some(200_000), Some(64_000), Some(3.0));
        check(ROUTER, "anthropic/claude-sonnet-4.5", sonnet);
        check(ROUTER, "anthropic/claude-sonnet-4.5:online", (sonnet.0, sonnet.1, None));
        check(ROUTER, "openai/claude-sonnet-4.5", (None, None, None));
        check(ROUTER, "claude-sonnet-4.5", (None, None, None));
        // Who serves it, and at what price, changes from call to call.
        check(ROUTER, "deepseek/deepseek-v4-pro", (None, None, None));
        assert_eq!(known(ROUTER, "deepseek/deepseek-v4-pro").reasoning, Some(true));
    }

    #[test]
    fn a_price_is_that_of_who_sends_the_bill() {
        let limits = (Some(200_000), Some(64_000), None);
        check("https://models.example.internal/v1", "claude-sonnet-4-5", limits);
        check("http://127.0.0.1:4000/v1", "claude-sonnet-4-5", limits);
        check("http://localhost/v1", "anthropic/claude-sonnet-4-5", limits);
        check("http://[::1]:8000", "claude-sonnet-4-5", limits);
        check("", "claude-sonnet-4-5", limits);
        check("https://api.anthropic.com.example.org", "claude-sonnet-4-5", limits);
        check("https://api.z.ai/api/coding/paas/v4", "glm-4.6", (None, None, None));
        check(OPENAI, "claude-sonnet-4-5", (None, None, None));
    }

    #[test]
    fn of_open_weights_on_a_machine_of_ones_own_neither_price_nor_room_is_known() {
        let local = "http://127.0.0.1:11434/v1";
        for id in ["qwen3:8b", "gpt-oss:20b", "llama3.1", "gemma3:27b"] {
            check(local, id, (None, None, None));
            assert!(known(local, id).images.is_some(), "{id}");
        }
        assert_eq!(known(local, "gemma3:27b").images, Some(true));
        check(
            "https://api.groq.com/openai/v1",
            "openai/gpt-oss-120b",
            (Some(131_072), Some(65_536), Some(0.15)),
        );
    }

    #[test]
    fn what_a_person_says_goes_before_what_is_known() {
        let price = Price { input: 9.0, ..Price::default() };
        let said = ModelFacts { context_window: Some(7), cost: Some(price), ..Default::default() };
        let got = completed(&said, known(ANTHROPIC, "claude-sonnet-4-5"));
        let want = ModelFacts {
            context_window: Some(7),
            known_max_tokens: Some(64_000),
            reasoning: Some(true),
            images: Some(true),
            cost: Some(price),
            ..ModelFacts::default()
        };
        assert_eq!(got, want);
        assert_eq!(got.output_limit(), Some(64_000));
        let said = ModelFacts { max_tokens: Some(5), ..ModelFacts::default() };
        let got = completed(&said, known(ANTHROPIC, "claude-sonnet-4-5"));
        assert_eq!((got.max_tokens, got.output_limit()), (Some(5), Some(5)));
    }

    #[test]
    fn every_row_is_found_under_its_own_id_and_is_plausible() {
        for row in TABLE {
            let found = find_among(&|it| it.vendor == row.vendor, row.id);
            assert!(found.is_some_and(|it| std::ptr::eq(it.0, row)), "{} stands twice", row.id);
            assert!(row.output <= row.context || row.context == 0, "{}", row.id);
            let Some(price) = row.price else { continue };
            let sound = 0.0 < price.cache_read
                && price.cache_read <= price.input
                && price.input <= price.cache_write
                && price.input <= price.output
                && price.output < 1_000.0;
            assert!(sound, "{}", row.id);
        }
    }

    #[test]
    fn the_table_takes_little_room() {
        assert!(size_of_val(TABLE) < 24 * 1024, "{}", size_of_val(TABLE));
    }
}
