//! The facts, as of October 2026, from the vendors' public pages of models and
//! prices. Dollars a million tokens, in the vendor's standard tier. A field that
//! is not sure is left out: it is then unknown, and the configuration can say
//! it. Where public sources differ, or the price hangs on the hour, the higher
//! one stands here, so that a limit on costs is kept. Names that move from model
//! to model (`mistral-large-latest`) are left out.
//!
//! The context of OpenAI's newer models is what they read: what they write has
//! room of its own beside it.

use super::{Known, Vendor};
use crate::config::{LongPrompt, Price};
use Vendor::{
    Anthropic, Anyone, Cerebras, DeepSeek, Google, Groq, Mistral, Moonshot, OpenAi, Xai, Zai,
};

const K: u64 = 1_000;
const M: u64 = 1_000 * K;

/// The models of a vendor together, those asked for most first.
pub(super) static TABLE: &[Known] = &[
    // Its writes to the cache are those of five minutes.
    seer(Anthropic, "claude-opus-5-5", M, 128 * K).thinks().costs(4.0, 20.0, 0.2).writes(5.0),
    seer(Anthropic, "claude-sonnet-5-5", M, 128 * K).thinks().costs(2.0, 10.0, 0.2).writes(2.5),
    seer(Anthropic, "claude-haiku-5-5", M, 128 * K)
        .thinks()
        .costs(0.1, 0.5, 0.01)
        .writes(0.125)
        .beyond(100 * K, 5.0, 5.0),
    seer(Anthropic, "claude-fable-5", M, 128 * K).thinks().costs(10.0, 50.0, 1.0).writes(12.5),
    seer(Anthropic, "claude-opus-5", M, 128 * K).thinks().costs(5.0, 25.0, 0.5).writes(6.25),
    seer(Anthropic, "claude-sonnet-5", M, 128 * K).thinks().costs(2.0, 10.0, 0.2).writes(2.5),
    seer(Anthropic, "claude-opus-4-8", M, 128 * K).thinks().costs(5.0, 25.0, 0.5).writes(6.25),
    seer(Anthropic, "claude-opus-4-7", M, 128 * K).thinks().costs(5.0, 25.0, 0.5).writes(6.25),
    seer(Anthropic, "claude-opus-4-6", M, 128 * K).thinks().costs(5.0, 25.0, 0.5).writes(6.25),
    seer(Anthropic, "claude-sonnet-4-6", M, 64 * K).thinks().costs(3.0, 15.0, 0.3).writes(3.75),
    seer(Anthropic, "claude-opus-4-5", 200 * K, 64 * K).thinks().costs(5.0, 25.0, 0.5).writes(6.25),
    seer(Anthropic, "claude-sonnet-4-5", 200 * K, 64 * K)
        .thinks()
        .costs(3.0, 15.0, 0.3)
        .writes(3.75),
    seer(Anthropic, "claude-haiku-4-5", 200 * K, 64 * K).thinks().costs(1.0, 5.0, 0.1).writes(1.25),
    seer(Anthropic, "claude-opus-4-1", 200 * K, 32 * K)
        .thinks()
        .costs(15.0, 75.0, 1.5)
        .writes(18.75),
    seer(Anthropic, "claude-opus-4-0", 200 * K, 32 * K)
        .thinks()
        .costs(15.0, 75.0, 1.5)
        .writes(18.75),
    seer(Anthropic, "claude-opus-4", 200 * K, 32 * K).thinks().costs(15.0, 75.0, 1.5).writes(18.75),
    seer(Anthropic, "claude-sonnet-4-0", 200 * K, 64 * K)
        .thinks()
        .costs(3.0, 15.0, 0.3)
        .writes(3.75),
    seer(Anthropic, "claude-sonnet-4", 200 * K, 64 * K).thinks().costs(3.0, 15.0, 0.3).writes(3.75),
    seer(Anthropic, "claude-3-7-sonnet", 200 * K, 64 * K)
        .thinks()
        .costs(3.0, 15.0, 0.3)
        .writes(3.75),
    seer(Anthropic, "claude-3-5-sonnet", 200 * K, 8_192).costs(3.0, 15.0, 0.3).writes(3.75),
    seer(Anthropic, "claude-3-5-haiku", 200 * K, 8_192).costs(0.8, 4.0, 0.08).writes(1.0),
    seer(Anthropic, "claude-3-haiku", 200 * K, 4_096).costs(0.25, 1.25, 0.03).writes(0.3),
    // What is read beyond 272,000 tokens makes the whole call dearer.
    seer(OpenAi, "gpt-6-astra", 922 * K, 128 * K)
        .thinks()
        .costs(10.0, 50.0, 1.0)
        .writes(12.5)
        .beyond(272 * K, 2.0, 1.5),
    seer(OpenAi, "gpt-6-sol", 922 * K, 128 * K).thinks().costs(2.0, 10.0, 0.2).writes(2.5).beyond(
        272 * K,
        2.0,
        1.5,
    ),
    seer(OpenAi, "gpt-6-luna", 922 * K, 128 * K)
        .thinks()
        .costs(0.1, 0.5, 0.01)
        .writes(0.125)
        .beyond(272 * K, 2.0, 1.5),
    seer(OpenAi, "gpt-5.6", 922 * K, 128 * K).thinks().costs(2.0, 10.0, 0.2).writes(2.5).beyond(
        272 * K,
        2.0,
        1.5,
    ),
    seer(OpenAi, "gpt-5.6-sol", 922 * K, 128 * K)
        .thinks()
        .costs(2.0, 10.0, 0.2)
        .writes(2.5)
        .beyond(272 * K, 2.0, 1.5),
    seer(OpenAi, "gpt-5.6-terra", 922 * K, 128 * K).thinks(),
    seer(OpenAi, "gpt-5.6-luna", 922 * K, 128 * K).thinks(),
    seer(OpenAi, "gpt-5.5", 922 * K, 128 * K).thinks().costs(5.0, 30.0, 0.5).beyond(
        272 * K,
        2.0,
        1.5,
    ),
    seer(OpenAi, "gpt-5.4", 922 * K, 128 * K).thinks().costs(2.5, 15.0, 0.25).beyond(
        272 * K,
        2.0,
        1.5,
    ),
    seer(OpenAi, "gpt-5.3-codex", 272 * K, 128 * K).thinks().costs(1.75, 14.0, 0.175),
    seer(OpenAi, "gpt-5.2", 272 * K, 128 * K).thinks().costs(1.75, 14.0, 0.175),
    seer(OpenAi, "gpt-5.2-codex", 272 * K, 128 * K).thinks().costs(1.75, 14.0, 0.175),
    seer(OpenAi, "gpt-5.1", 272 * K, 128 * K).thinks().costs(1.25, 10.0, 0.125),
    seer(OpenAi, "gpt-5.1-codex", 272 * K, 128 * K).thinks().costs(1.25, 10.0, 0.125),
    seer(OpenAi, "gpt-5", 272 * K, 128 * K).thinks().costs(1.25, 10.0, 0.125),
    seer(OpenAi, "gpt-5-codex", 272 * K, 128 * K).thinks().costs(1.25, 10.0, 0.125),
    seer(OpenAi, "gpt-5-mini", 272 * K, 128 * K).thinks().costs(0.25, 2.0, 0.025),
    seer(OpenAi, "gpt-5-nano", 272 * K, 128 * K).thinks().costs(0.05, 0.4, 0.005),
    seer(OpenAi, "gpt-4.1", 1_047_576, 32_768).costs(2.0, 8.0, 0.5),
    seer(OpenAi, "gpt-4.1-mini", 1_047_576, 32_768).costs(0.4, 1.6, 0.1),
    seer(OpenAi, "gpt-4.1-nano", 1_047_576, 32_768).costs(0.1, 0.4, 0.025),
    seer(OpenAi, "gpt-4o", 128 * K, 16_384).costs(2.5, 10.0, 1.25),
    seer(OpenAi, "gpt-4o-mini", 128 * K, 16_384).costs(0.15, 0.6, 0.075),
    seer(OpenAi, "o3", 200 * K, 100 * K).thinks().costs(2.0, 8.0, 0.5),
    seer(OpenAi, "o4-mini", 200 * K, 100 * K).thinks().costs(1.1, 4.4, 0.275),
    model(OpenAi, "o3-mini", 200 * K, 100 * K).thinks().costs(1.1, 4.4, 0.55),
    // The price from 2027 on; it is lower before.
    seer(Google, "gemini-3.8-flash", 1_048_576, 65_536).thinks().costs(1.5, 7.5, 0.15),
    seer(Google, "gemini-3.7-flash", 1_048_576, 65_536).thinks().costs(1.5, 7.5, 0.15),
    seer(Google, "gemini-3.5-flash", 1_048_576, 65_536).thinks().costs(1.5, 9.0, 0.15),
    seer(Google, "gemini-3.1-pro-preview", 1_048_576, 65_536)
        .thinks()
        .costs(2.0, 12.0, 0.2)
        .beyond(200 * K, 2.0, 1.5),
    seer(Google, "gemini-3-pro-preview", 1_048_576, 65_536).thinks().costs(2.0, 12.0, 0.2).beyond(
        200 * K,
        2.0,
        1.5,
    ),
    seer(Google, "gemini-3-flash-preview", 1_048_576, 65_536).thinks().costs(0.5, 3.0, 0.05),
    seer(Google, "gemini-3.1-flash-lite", 1_048_576, 65_536).thinks().costs(0.25, 1.5, 0.025),
    seer(Google, "gemini-2.5-pro", 1_048_576, 65_536).thinks().costs(1.25, 10.0, 0.125).beyond(
        200 * K,
        2.0,
        1.5,
    ),
    seer(Google, "gemini-2.5-flash", 1_048_576, 65_536).thinks().costs(0.3, 2.5, 0.03),
    seer(Google, "gemini-2.5-flash-lite", 1_048_576, 65_536).thinks().costs(0.1, 0.4, 0.01),
    seer(Google, "gemini-2.0-flash", 1_048_576, 8_192).costs(0.1, 0.4, 0.025),
    // The price of its dearer hours.
    model(DeepSeek, "deepseek-v4-pro", M, 384 * K).thinks().costs(1.32, 3.96, 0.044),
    seer(DeepSeek, "deepseek-flash", M, 384 * K).thinks().costs(0.3, 1.2, 0.006),
    model(DeepSeek, "deepseek-v4-flash", M, 384 * K).thinks().costs(0.44, 1.32, 0.014),
    model(DeepSeek, "deepseek-chat", 128 * K, 8_192),
    model(DeepSeek, "deepseek-reasoner", 128 * K, 64 * K).thinks(),
    seer(Xai, "grok-4.7", 500 * K, 0).thinks().costs(2.0, 6.0, 0.5).beyond(200 * K, 2.0, 2.0),
    seer(Xai, "grok-4.6", 500 * K, 0).thinks().costs(2.0, 6.0, 0.5).beyond(200 * K, 2.0, 2.0),
    seer(Xai, "grok-4.5", 500 * K, 0).thinks().costs(2.0, 6.0, 0.5).beyond(200 * K, 2.0, 2.0),
    seer(Xai, "grok-4.3", M, 30 * K).thinks().costs(1.25, 2.5, 0.2).beyond(200 * K, 2.0, 2.0),
    seer(Xai, "grok-4", 256 * K, 64 * K).thinks().costs(3.0, 15.0, 0.75).beyond(128 * K, 2.0, 2.0),
    seer(Xai, "grok-4-1-fast", 2 * M, 30 * K).thinks().costs(0.2, 0.5, 0.05).beyond(
        128 * K,
        2.0,
        2.0,
    ),
    seer(Xai, "grok-4-fast", 2 * M, 30 * K).thinks().costs(0.2, 0.5, 0.05).beyond(
        128 * K,
        2.0,
        2.0,
    ),
    model(Xai, "grok-code-fast-1", 256 * K, 10 * K).thinks().costs(0.2, 1.5, 0.02),
    model(Xai, "grok-3", 131_072, 8_192).costs(3.0, 15.0, 0.75),
    seer(Mistral, "mistral-large-2512", 262_144, 0).costs(0.5, 1.5, 0.5),
    seer(Mistral, "mistral-medium-2604", 262_144, 0).thinks().costs(1.5, 7.5, 1.5),
    seer(Mistral, "mistral-medium-3.5", 262_144, 0).thinks().costs(1.5, 7.5, 1.5),
    seer(Mistral, "mistral-medium-2508", 128 * K, 0).costs(0.4, 2.0, 0.4),
    seer(Mistral, "mistral-small-2506", 128 * K, 0).costs(0.1, 0.3, 0.1),
    model(Mistral, "codestral-2508", 128 * K, 0).costs(0.3, 0.9, 0.3),
    model(Mistral, "devstral-2512", 262_144, 0).costs(0.4, 2.0, 0.4),
    seer(Moonshot, "kimi-k3", 1_048_576, 262_144).thinks().costs(3.0, 15.0, 0.3),
    seer(Moonshot, "kimi-k2.6", 262_144, 0).thinks().costs(0.95, 4.0, 0.16),
    seer(Moonshot, "kimi-k2.5", 262_144, 0).thinks().costs(0.6, 3.0, 0.1),
    model(Moonshot, "kimi-k2-thinking", 262_144, 0).thinks().costs(0.6, 2.5, 0.15),
    model(Moonshot, "kimi-k2-0905-preview", 262_144, 0).costs(0.6, 2.5, 0.15),
    model(Zai, "glm-5.3", 0, 0).thinks(),
    model(Zai, "glm-5.2", 0, 0).thinks(),
    model(Zai, "glm-5.1", 204_800, 131_072).thinks(),
    model(Zai, "glm-5", 204_800, 131_072).thinks(),
    model(Zai, "glm-4.7", 204_800, 131_072).thinks().costs(0.6, 2.2, 0.11),
    model(Zai, "glm-4.6", 204_800, 131_072).thinks().costs(0.6, 2.2, 0.11),
    model(Zai, "glm-4.5", 131_072, 98_304).thinks().costs(0.6, 2.2, 0.11),
    model(Zai, "glm-4.5-air", 131_072, 98_304).thinks().costs(0.2, 1.1, 0.03),
    seer(Zai, "glm-4.5v", 65_536, 16_384).thinks(),
    model(Groq, "openai/gpt-oss-120b", 131_072, 65_536).thinks().costs(0.15, 0.6, 0.15),
    model(Groq, "openai/gpt-oss-20b", 131_072, 65_536).thinks().costs(0.075, 0.3, 0.075),
    model(Groq, "qwen/qwen3-32b", 131_072, 0).thinks().costs(0.29, 0.59, 0.29),
    model(Groq, "llama-3.3-70b-versatile", 131_072, 32_768).costs(0.59, 0.79, 0.59),
    model(Groq, "llama-3.1-8b-instant", 131_072, 131_072).costs(0.05, 0.08, 0.05),
    model(Cerebras, "gpt-oss-120b", 131_072, 0).thinks(),
    model(Cerebras, "zai-glm-4.7", 131_072, 40 * K),
    // How much of a conversation fits is a setting of the server.
    model(Anyone, "gpt-oss", 0, 0).thinks(),
    model(Anyone, "gpt-oss-120b", 0, 0).thinks(),
    model(Anyone, "gpt-oss-20b", 0, 0).thinks(),
    model(Anyone, "qwen3", 0, 0).thinks(),
    model(Anyone, "qwen3-coder", 0, 0),
    model(Anyone, "qwen2.5", 0, 0),
    model(Anyone, "qwen2.5-coder", 0, 0),
    seer(Anyone, "qwen2.5vl", 0, 0),
    model(Anyone, "llama3.3", 0, 0),
    seer(Anyone, "llama3.2-vision", 0, 0),
    model(Anyone, "llama3.2", 0, 0),
    model(Anyone, "llama3.1", 0, 0),
    model(Anyone, "llama3", 0, 0),
    seer(Anyone, "llama4", 0, 0),
    seer(Anyone, "gemma3", 0, 0),
    model(Anyone, "gemma3:1b", 0, 0),
    model(Anyone, "gemma3:270m", 0, 0),
    model(Anyone, "deepseek-r1", 0, 0).thinks(),
    seer(Anyone, "mistral-small3.2", 0, 0),
    model(Anyone, "devstral", 0, 0),
    model(Anyone, "phi4", 0, 0),
];

/// A model that reads text only.
const fn model(vendor: Vendor, id: &'static str, context: u64, output: u64) -> Known {
    Known { vendor, id, context, output, price: None, sees: false, thinks: false }
}

/// A model that can be shown images.
const fn seer(vendor: Vendor, id: &'static str, context: u64, output: u64) -> Known {
    Known { sees: true, ..model(vendor, id, context, output) }
}

impl Known {
    const fn thinks(self) -> Self {
        Self { thinks: true, ..self }
    }

    /// With its price; what is written to a cache costs what reading does.
    const fn costs(self, input: f64, output: f64, cache_read: f64) -> Self {
        let price = Price { input, output, cache_read, cache_write: input, long: None };
        Self { price: Some(price), ..self }
    }

    /// With a price of its own for what is written to a cache.
    const fn writes(self, cache_write: f64) -> Self {
        let price = match self.price {
            Some(price) => Some(Price { cache_write, ..price }),
            None => None,
        };
        Self { price, ..self }
    }

    /// Dearer by these factors where more than `above` tokens are read.
    const fn beyond(self, above: u64, input: f64, output: f64) -> Self {
        let price = match self.price {
            Some(price) => Some(Price { long: Some(LongPrompt { above, input, output }), ..price }),
            None => None,
        };
        Self { price, ..self }
    }
}
