// A plugin as people wrote them for the TypeScript gateway, with what compilers
// take and a runtime by itself does not: types imported without `type`, an enum,
// "./words.js" for words.ts, and output on standard output.

import { formatChannelError, isAllModelsExhausted, PluginContext } from "@matthias-hausberger/beige";
import type { PluginRegistrar, SessionContext } from "@matthias-hausberger/beige";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { Loud, said, Tone } from "./words.js";

interface Config {
  word: string;
}

export function createPlugin(config: Config, ctx: PluginContext) {
  console.log("made with", config);
  process.stdout.write("and no line is a message\n");
  const heard: unknown[] = [];

  // A member of the context: `old NAME [JSON of its arguments]`.
  async function member(name: string, args: unknown[]): Promise<unknown> {
    const it = (ctx as Record<string, unknown>)[name];
    return typeof it === "function" ? await it(...args) : it;
  }

  const own: Record<string, (args: any[], config: Config, at: SessionContext) => unknown> = {
    pid: () => process.pid,
    piped: (_, __, { stdin }) => stdin,
    configs: (_, called) => [config, called],
    context: (_, __, { agentName, channel, workspaceDir }) => [agentName, channel, workspaceDir],
    heard: () => heard,
    loud: ([text]: [string]) => {
      const words: Loud = { loud: true };
      return said(text, words.loud ? Tone.Loud : Tone.Quiet);
    },
    send: async ([name, ...message]) => await ctx.getChannel(name)?.sendMessage(...message),
    channel: ([name]) => ctx.getChannel(name)?.supportsMessaging(),
    streamed: async ([key]: [string], _, at) => {
      const told: string[] = [];
      at.onToolStart?.("exec", { command: "true" });
      const text = await ctx.promptStreaming(key, "a", "stream", (it) => void told.push(it), {
        onToolStart: (tool, params) => void told.push(`${tool} ${params.command}`),
        onAssistantTurnStart: () => void told.push("turn"),
        channel: "old",
        replyTo: { channel: "old", address: "7" },
      });
      return [text, told];
    },
    sync: ([count]: [number]) => {
      let last: unknown;
      for (let done = 0; done < count; done += 1) last = ctx.isSessionActive("old:1");
      return last;
    },
    asking: () => {
      fs.writeFileSync(path.join(ctx.dataDir, "asking"), "");
      for (;;) ctx.isSessionActive("old:1");
    },
    round: () => {
      const it: Record<string, unknown> = {};
      it.round = it;
      ctx.log.warn("round", it, 10n);
    },
    pause: async (_, __, { signal }) => {
      fs.writeFileSync(path.join(ctx.dataDir, "pausing"), "");
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      fs.writeFileSync(path.join(ctx.dataDir, "called-off"), "");
    },
    die: () => process.exit(9),
  };

  // What is an odd end of a call as it stands.
  const ends: Record<string, (args: any[]) => any> = {
    begun: () => {
      execFileSync("/bin/sh", ["-c", "printf 'half a line'"], { stdio: "inherit" });
      return { output: "whole", exitCode: 0 };
    },
    half: () => ({ output: "😀😀".slice(0, 3), exitCode: 0 }),
    mute: () => {
      throw {
        toString() {
          throw new Error("nobody can say it");
        },
      };
    },
    long: ([length]: [number]) => ({ output: "x".repeat(length), exitCode: 0 }),
  };

  return {
    register(reg: PluginRegistrar): void {
      reg.tool({
        name: "old",
        description: "Does what it is told.",
        commands: ["old WHAT [JSON]"],
        async handler(args: string[], called: Config, at: SessionContext) {
          const [what, json] = args;
          const given = JSON.parse(json ?? "[]");
          if (ends[what]) return ends[what](given);
          try {
            const value = await (own[what] ? own[what](given, called, at) : member(what, given));
            return { output: JSON.stringify(value ?? null) + "\n", exitCode: 0 };
          } catch (error) {
            const text = `${formatChannelError(error, true)} ${isAllModelsExhausted(error)}\n`;
            return { output: text, exitCode: 3 };
          }
        },
      });
      reg.hook("prePrompt", async (event: { message: string }) => {
        return { message: event.message + "!" };
      });
      reg.hook("prePrompt", async ({ message }: { message: string }) => {
        return message.includes("BLOCK!") ? { message, block: true, reason: "no" } : { message };
      });
      reg.hook("sessionCreated", async (event: unknown) => void heard.push(event));
      reg.channel({
        supportsMessaging: () => true,
        async sendMessage(chatId, threadId, text, opts) {
          ctx.log.info(`to ${chatId} in ${threadId ?? "no thread"}: ${text} (${opts?.parseMode})`);
        },
      });
    },
    async start(): Promise<void> {
      ctx.log.info("begun");
    },
    async stop(): Promise<void> {
      fs.writeFileSync(path.join(ctx.dataDir, "stopped"), "");
    },
  };
}
