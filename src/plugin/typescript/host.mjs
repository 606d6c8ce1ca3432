// The host of one plugin of the TypeScript gateway: it runs under node, deno
// or bun, imports the plugin as it is, and speaks for it with the gateway.
//
// What it speaks is JSON-RPC, one message a line, on standard input and output
// (docs/plugins.md, "Servers"). Members of the plugin's context that are
// synchronous cannot wait for standard input, so each asks over a pair of FIFOs
// by a blocking read instead. This file is also the module that plugins import
// by the package's name at run time: see the exports at the end.

import { AsyncLocalStorage } from "node:async_hooks";
import { Console } from "node:console";
import fs from "node:fs";
import module from "node:module";
import path from "node:path";
import process from "node:process";
import { fileURLToPath, pathToFileURL } from "node:url";
import { inspect } from "node:util";

const PACKAGE = "@matthias-hausberger/beige";
const HOST = import.meta.url;
const FAILED = -32000;
const LONGEST = 16 * 1024 * 1024; // Bytes of a message; for more the gateway ends a plugin.
const NO_SUCH_METHOD = -32601;

// Settings of the gateway. A configuration can hold keys, so that programs
// which the plugin starts do not inherit it.
const setting = (name) => {
  const value = process.env[name];
  delete process.env[name];
  return value;
};
const entry = setting("BEIGE_PLUGIN_ENTRY");
const ownConfig = JSON.parse(setting("BEIGE_PLUGIN_CONFIG"));
const dataDir = setting("BEIGE_DATA_DIR");
const syncPaths = { ask: setting("BEIGE_SYNC_ASK"), answer: setting("BEIGE_SYNC_ANSWER") };

// ---- Standard output is for messages alone --------------------------------

Object.defineProperty(process, "stdout", { configurable: true, get: () => process.stderr });
globalThis.console = new Console(process.stderr, process.stderr);

// On a line of its own, whatever a program that the plugin has started began there.
function send(message) {
  writeAll(1, { jsonrpc: "2.0", ...message }, "\n");
}

// In pieces that a pipe takes as a whole or not at all: of a larger one Deno
// does not tell how much was written before the pipe was full.
function writeAll(fd, message, before = "") {
  let rest = Buffer.from(before + JSON.stringify(message) + "\n");
  if (rest.length > LONGEST) throw new Error(`${rest.length} bytes are too many for a message`);
  while (rest.length > 0) {
    try {
      rest = rest.subarray(fs.writeSync(fd, rest, 0, Math.min(rest.length, 4096)));
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
  }
}

// ---- What the plugin asks of the gateway ----------------------------------

let lastId = 0;
const asked = new Map(); // By id: { resolve, reject, onEvent }.

// The tool call in which the code that runs now was started, if it was in one:
// { context, ids }. What a call asks for is billed to its session, and called
// off together with it.
const calls = new AsyncLocalStorage();

function ask(method, params, onEvent) {
  const id = ++lastId;
  const call = calls.getStore();
  return new Promise((resolve, reject) => {
    asked.set(id, { resolve, reject, onEvent });
    call?.ids.add(id);
    send({ id, method, params });
  }).finally(() => {
    asked.delete(id);
    call?.ids.delete(id);
  });
}

function tell(method, params) {
  send({ method, params });
}

// Opened at the start, so that a gateway that dies later is the end of the
// file or a broken pipe, and never a wait.
const { O_RDONLY, O_WRONLY, O_NONBLOCK } = fs.constants;
const askFd = fs.openSync(syncPaths.ask, O_WRONLY | O_NONBLOCK);
const answerFd = fs.openSync(syncPaths.answer, O_RDONLY);
for (const fifo of Object.values(syncPaths)) fs.rmSync(fifo, { force: true });
const piece = Buffer.alloc(64 * 1024);

function askSync(method, params) {
  const id = ++lastId;
  writeAll(askFd, { jsonrpc: "2.0", id, method, params });
  // Only one request is under way, so what comes is one line: its answer.
  const pieces = [];
  for (let count = 0; piece[count - 1] !== 10; ) {
    count = fs.readSync(answerFd, piece, 0, piece.length, null);
    if (count === 0) throw new Error(`${method}: the gateway has ended`);
    pieces.push(Buffer.from(piece.subarray(0, count)));
  }
  const answer = JSON.parse(Buffer.concat(pieces).toString());
  if (answer.error) throw new Error(answer.error.message);
  return answer.result ?? {};
}

// ---- The plugin context ---------------------------------------------------

const session = (name, params) => ask(`beige/session/${name}`, params);
const sessionSync = (name, params) => askSync(`beige/session/${name}`, params);
const optional = (value) => value ?? undefined;

// Asked for once: a gateway with another configuration starts its plugins anew.
let gateway;
const gatewayConfig = () => (gateway ??= askSync("beige/config/get", {}));

const ctx = {
  get config() {
    return gatewayConfig().config;
  },
  get agentNames() {
    return gatewayConfig().agentNames;
  },
  dataDir,
  log: Object.fromEntries(
    ["info", "warn", "error"].map((level) => [
      level,
      (...words) => tell("beige/log", { level, text: words.map(asText).join(" ") }),
    ]),
  ),

  prompt: (sessionKey, agentName, message, opts) =>
    prompt({ sessionKey, agentName, message }, undefined, opts),
  promptStreaming: (sessionKey, agentName, message, onDelta, opts) =>
    prompt({ sessionKey, agentName, message }, onDelta, opts),
  llmPrompt: async (provider, modelId, messages, opts) => {
    const { systemPrompt, maxTokens, thinkingLevel } = opts ?? {};
    const params = { provider, modelId, messages, systemPrompt, maxTokens, thinkingLevel };
    return (await ask("beige/llm/prompt", params)).text;
  },
  invokeTool: (tool, args, given) => {
    const at = given ?? calls.getStore()?.context ?? {};
    const { sessionKey, channel, chatId, threadId, agentName } = at;
    const sessionContext = { sessionKey, channel, chatId, threadId };
    return ask("beige/tools/invoke", { tool, args, agentName, sessionContext });
  },

  newSession: async (sessionKey, agentName) => void (await session("new", { sessionKey, agentName })),
  compactSession: (sessionKey) => session("compact", { sessionKey }),
  abortSession: async (sessionKey) => (await session("abort", { sessionKey })).aborted,
  disposeSession: async (sessionKey) => void (await session("dispose", { sessionKey })),
  steerSession: async (sessionKey, text) => void (await session("steer", { sessionKey, text })),

  createSession: (sessionKey, agentName, metadata) =>
    sessionSync("create", { sessionKey, agentName, metadata }).sessionFile,
  getSessionSettings: (sessionKey) => sessionSync("settings.get", { sessionKey }).settings,
  updateSessionSettings: (sessionKey, settings) =>
    sessionSync("settings.update", { sessionKey, settings }).settings,
  clearSessionSettings: (sessionKey) => void sessionSync("settings.clear", { sessionKey }),
  setSessionMetadata: (sessionKey, key, value) =>
    void sessionSync("metadata.set", { sessionKey, key, value }),
  getSessionMetadata: (sessionKey, key) =>
    optional(sessionSync("metadata.get", { sessionKey, key }).value),
  persistSessionModel: (sessionKey, agentName, provider, modelId) =>
    void sessionSync("model.set", { sessionKey, agentName, provider, modelId }),
  clearSessionModel: (sessionKey) => void sessionSync("model.clear", { sessionKey }),
  getSessionModel: (sessionKey) => optional(sessionSync("model.get", { sessionKey }).model),
  listSessions: (agentName, { includeToolSessions } = {}) =>
    sessionSync("list", { agentName, includeToolSessions }).sessions,
  listSessionKeys: (agentName, { includeToolSessions } = {}) =>
    sessionSync("listKeys", { agentName, includeToolSessions }).keys,
  getSessionEntry: (sessionKey) => optional(sessionSync("get", { sessionKey }).entry),
  getSessionUsage: (sessionKey) => optional(sessionSync("usage", { sessionKey }).usage),
  isSessionActive: (sessionKey) => sessionSync("isActive", { sessionKey }).active,

  getModel: (provider, modelId) =>
    optional(askSync("beige/model/get", { provider, modelId }).model),
  getModelHealth: (provider, modelId) =>
    optional(askSync("beige/model/health", { provider, modelId }).health),
  clearModelHealth: (provider, modelId) =>
    void askSync("beige/model/clearHealth", { provider, modelId }),
  getRegisteredTools: () => askSync("beige/tools/list", {}).tools,
  getChannel: (name) => {
    const { channels } = askSync("beige/channels/list", {});
    const found = channels.find((it) => it.name === name);
    if (!found) return undefined;
    return {
      supportsMessaging: () => found.supportsMessaging,
      sendMessage: async (chatId, threadId, text, opts) => {
        const { parseMode } = opts ?? {};
        await ask("beige/channels/send", { channel: name, chatId, threadId, text, parseMode });
      },
    };
  },
};

async function prompt(params, onDelta, opts = {}) {
  const { channel, replyTo, modelOverride } = opts;
  const model = modelOverride && {
    provider: modelOverride.provider,
    modelId: modelOverride.model ?? modelOverride.modelId,
  };
  const listens = onDelta || Object.values(opts).some((it) => typeof it === "function");
  const parentSessionKey = calls.getStore()?.context.sessionKey;
  const answer = await ask(
    "beige/prompt",
    { ...params, channel, replyTo, model, stream: Boolean(listens), parentSessionKey },
    listens && promptEvents(onDelta, opts),
  );
  return answer.response;
}

// Tells the events of a prompt to the callbacks that are there for them.
function promptEvents(onDelta, opts) {
  let reason; // Of the compaction that runs.
  return (event) => {
    switch (event.type) {
      case "text_delta":
        return callBack(onDelta, event.delta);
      case "tool_start":
        return callBack(opts.onToolStart, event.tool, event.params);
      case "turn_start":
        return callBack(opts.onAssistantTurnStart);
      case "compaction_start":
        reason = event.reason;
        return callBack(opts.onAutoCompactionStart);
      case "compaction_end":
        return callBack(opts.onAutoCompactionEnd, {
          success: event.compacted,
          tokensBefore: event.tokensBefore,
          // A conversation that was too long is sent again once it is shorter.
          willRetry: event.compacted && reason === "too_long",
          errorMessage: event.compacted ? undefined : event.reason,
        });
    }
  };
}

// What a callback throws is the plugin's to see, and costs the prompt nothing.
async function callBack(callback, ...values) {
  try {
    await callback?.(...values);
  } catch (error) {
    console.error("a callback failed:", error);
  }
}

// ---- What the plugin registers, and what the gateway asks of it -----------

let plugin;
const tools = new Map();
const hooks = new Map(); // By name: handlers, in the order of their coming.
const skills = [];
let channel;

const registrar = {
  tool: (tool) => void tools.set(tool.name, tool),
  hook: (name, handler) => void hooks.set(name, [...(hooks.get(name) ?? []), handler]),
  channel: (adapter) => void (channel = adapter),
  skill: ({ name, path: file, description }) =>
    void skills.push({ name, path: path.resolve(file), description }),
};

const methods = {
  ping: () => ({}),
  initialize: async ({ protocolVersion }) => {
    plugin = await load();
    plugin.register(registrar);
    const beige = {
      version: 1,
      tools: [...tools.values()].map(({ name, description, commands }) => {
        return { name, description, commands };
      }),
      hooks: [...hooks.keys()],
      channel: channel && { supportsMessaging: Boolean(channel.supportsMessaging?.() ?? true) },
      skills,
    };
    return {
      protocolVersion,
      serverInfo: { name: process.env.BEIGE_PLUGIN, version: "1" },
      capabilities: { experimental: { beige } },
    };
  },
  "beige/start": async () => void (await plugin.start?.()),
  "beige/stop": async () => void (await plugin.stop?.()),
  "beige/tool": callTool,
  "beige/hook": callHook,
  "beige/channel/send": async ({ chatId, threadId, text, parseMode }) => {
    if (!channel) throw new Error("this plugin has no channel");
    await channel.sendMessage(chatId, threadId, text, { parseMode });
  },
};

async function load() {
  const loaded = await import(pathToFileURL(entry).href);
  const create = loaded.createPlugin ?? loaded.default?.createPlugin ?? loaded.default;
  if (typeof create !== "function") throw new Error(`${entry} exports no function createPlugin`);
  return create(ownConfig, ctx);
}

const running = new Map(); // Tool calls by id: { canceller, call }.

async function callTool({ tool, args, stdin, config, context }, id) {
  const handler = tools.get(tool)?.handler;
  if (!handler) throw new Error(`this plugin registers no tool ${tool}`);
  const canceller = new AbortController();
  const onToolStart = (name, params) =>
    tell("beige/toolStart", { requestId: id, tool: name, params });
  const call = { context, ids: new Set() };
  running.set(id, { canceller, call });
  try {
    // `stdin` and `signal` are additions of this gateway.
    const sessionContext = { ...context, onToolStart, stdin, signal: canceller.signal };
    const result = await calls.run(call, () => handler(args, config, sessionContext));
    if (typeof result !== "object") throw new Error(`${tool} gives no {output, exitCode}`);
    return { output: asText(result?.output ?? ""), exitCode: result?.exitCode ?? 0 };
  } finally {
    running.delete(id);
    // What goes on in the background is no part of the call any more.
    call.context = {};
  }
}

function callOff({ requestId }) {
  const { canceller, call } = running.get(requestId) ?? {};
  canceller?.abort();
  for (const id of call?.ids ?? []) {
    tell("notifications/cancelled", { requestId: id, reason: "the tool call was called off" });
    // The gateway does not answer what was called off.
    asked.get(id)?.reject(new Error("called off"));
  }
}

async function callHook({ hook, event }) {
  // A hook that nobody registered has nothing against anything.
  let result = hook === "preToolExec" && !hooks.has(hook) ? { allow: true } : {};
  for (const handler of hooks.get(hook) ?? []) {
    result = { ...result, ...(await handler({ ...event, ...result })) };
    if (result.block || result.allow === false) break;
  }
  return result;
}

// ---- Standard input -------------------------------------------------------

async function serve({ id, method, params }) {
  try {
    const handler = Object.hasOwn(methods, method) ? methods[method] : undefined;
    if (!handler) {
      const message = `this plugin has no method ${method}`;
      return send({ id, error: { code: NO_SUCH_METHOD, message } });
    }
    send({ id, result: (await handler(params ?? {}, id)) ?? {} });
  } catch (error) {
    console.error(asText(error));
    send({ id, error: { code: FAILED, message: messageOf(error) } });
  }
}

function hear(message) {
  const { id, method, params } = message;
  if (method === undefined) {
    const waiting = asked.get(id);
    if (message.error) waiting?.reject(new Error(message.error.message));
    else waiting?.resolve(message.result ?? {});
  } else if (id !== undefined) {
    serve(message);
  } else if (method === "beige/promptEvent") {
    asked.get(params.requestId)?.onEvent?.(params.event);
  } else if (method === "notifications/cancelled") {
    callOff(params);
  }
}

let begun = []; // Pieces of a line that has not ended.
process.stdin.setEncoding("utf8");
process.stdin.on("data", (text) => {
  const lines = text.split("\n");
  begun.push(lines.shift());
  for (const next of lines) {
    const line = begun.join("");
    begun = [next];
    if (line !== "") hear(JSON.parse(line));
  }
});
process.stdin.on("end", () => process.exit(0));

// ---- How the package's name and TypeScript are resolved -------------------

// Deno is given an import map and strips types by itself; bun knows both.
if (globalThis.Bun) {
  const exports = {
    formatChannelError,
    formatTelegramError,
    isAllModelsExhausted,
    formatAllModelsExhaustedError,
    getErrorTag,
  };
  const setup = (build) => build.module(PACKAGE, () => ({ exports, loader: "object" }));
  globalThis.Bun.plugin({ name: "beige", setup });
} else if (!globalThis.Deno && module.registerHooks) {
  module.registerHooks({ resolve: resolveInNode, load: loadInNode });
} else if (!globalThis.Deno) {
  // Before 22.15 hooks run in a thread of their own, for which they are a module.
  const source = `import fs from "node:fs";
    import module from "node:module";
    import { fileURLToPath } from "node:url";
    const PACKAGE = ${JSON.stringify(PACKAGE)};
    const HOST = ${JSON.stringify(HOST)};
    ${[resolveInNode, loadInNode, stripTypes, withoutUnusedImports].join("\n")}
    export { resolveInNode as resolve, loadInNode as load };`;
  module.register("data:text/javascript," + encodeURIComponent(source));
}

// The package's name is this file; and as with the compilers of TypeScript
// "./a.js" and "./a" may mean a.ts.
function resolveInNode(specifier, context, next) {
  if (specifier === PACKAGE) return { url: HOST, shortCircuit: true };
  if (/^\.\.?\//.test(specifier) && context.parentURL?.startsWith("file:")) {
    const isFile = (it) =>
      fs.statSync(new URL(it, context.parentURL), { throwIfNoEntry: false })?.isFile();
    const typed = [specifier.replace(/\.js$/, ".ts"), `${specifier}.ts`, `${specifier}/index.ts`];
    specifier = [specifier, ...typed].find(isFile) ?? specifier;
  }
  return next(specifier, context);
}

// Node leaves an import of a type as it stands unless it says `type`. Compilers
// leave out what is not used as a value, and so is it done here.
function loadInNode(url, context, next) {
  // Before 22.13 node has to be left alone with it.
  if (!/^file:.*\.m?ts$/.test(url) || !module.stripTypeScriptTypes) return next(url, context);
  const file = fileURLToPath(url);
  const source = withoutUnusedImports(stripTypes(fs.readFileSync(file, "utf8"), file));
  return { format: "module", source, shortCircuit: true };
}

function stripTypes(source, file) {
  try {
    return module.stripTypeScriptTypes(source, { mode: "strip" });
  } catch (error) {
    // Enums and the like need more than leaving out.
    if (error.code === "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX") {
      return module.stripTypeScriptTypes(source, { mode: "transform", sourceUrl: file });
    }
    error.message = `${file}: ${error.message}`;
    throw error;
  }
}

function withoutUnusedImports(source) {
  const statement =
    /^[ \t]*import\s+(?:([\w$]+)\s*(?:,\s*)?)?(?:\{([^{}]*)\}\s*)?from\s*(["'][^"'\n]+["']);?/gm;
  const comments = /^[ \t]*(?:\/\/.*|\/\*[^]*?\*\/)/gm;
  const rest = source.replace(statement, "").replace(comments, "").replaceAll("...", " ");
  // What stands behind a dot is a member of something else.
  const used = new Set(rest.match(/(?<![\w$.])[\w$]+/g));
  return source.replace(statement, (whole, main, list, from) => {
    const names = (list ?? "").split(",").filter((it) => used.has(it.match(/[\w$]+(?=\s*$)/)?.[0]));
    const parts = [];
    if (used.has(main)) parts.push(main);
    if (names.length > 0) parts.push(`{${names.map((it) => it.trim()).join(", ")}}`);
    const kept = parts.length > 0 ? `import ${parts.join(", ")} from ${from};` : "";
    // Lines keep their numbers.
    return kept + "\n".repeat(whole.split("\n").length - 1);
  });
}

// ---- What plugins import from the package ---------------------------------

// Neither fails: values can be of any kind, and what is told is often an error.
function messageOf(error) {
  try {
    return String(error?.message ?? error);
  } catch {
    return "something was thrown that has no text";
  }
}

function asText(value) {
  try {
    if (value instanceof Error) return String(value.stack ?? messageOf(value));
    return typeof value === "string" ? value : (JSON.stringify(value) ?? String(value));
  } catch {
    // It leads to itself, or holds what JSON has not.
    return inspect(value);
  }
}

/** Whether a prompt failed because every model that may answer it did. */
export function isAllModelsExhausted(error) {
  return messageOf(error).includes("All models failed");
}

/** What kind of failure it is, in a word. */
export function getErrorTag(error) {
  const message = messageOf(error);
  if (isAllModelsExhausted(error)) return "all-models-failed";
  if (/rate.?limit|too many requests|\b429\b/i.test(message)) return "rate-limit";
  if (/api.?key|unauthori[sz]ed|\b40[13]\b/i.test(message)) return "auth";
  if (/timed? ?out|timeout/i.test(message)) return "timeout";
  if (/abort|called off|cancel/i.test(message)) return "aborted";
  return "error";
}

/** For a person, when every model failed. */
export function formatAllModelsExhaustedError(error) {
  const last = messageOf(error).match(/Last error: ([^]*)/)?.[1];
  return "No model could answer. Please try again later." + (last ? ` (${last})` : "");
}

/** For a person in a chat; `verbose` with what exactly went wrong. */
export function formatChannelError(error, verbose = false) {
  if (verbose) return `⚠️ ${getErrorTag(error)}: ${messageOf(error)}`;
  if (isAllModelsExhausted(error)) return `⚠️ ${formatAllModelsExhaustedError(error)}`;
  const known = {
    "rate-limit": "The model is asked too often just now. Please try again later.",
    auth: "The model's provider refuses our key.",
    timeout: "That took too long. Please try again.",
    aborted: "Called off.",
  };
  return `⚠️ ${known[getErrorTag(error)] ?? "Something went wrong. Please try again."}`;
}

/** The same, for Telegram. */
export function formatTelegramError(error, verbose) {
  return formatChannelError(error, verbose);
}
