// A letterbox. Whoever drops `inbox/NAME.txt` into the plugin's data folder has
// the agent answer it in `outbox/NAME.txt`: a channel in fifty lines. It gives a
// tool, a hook, a channel and a loop in the background, which is all that a
// plugin of the TypeScript gateway can.

import { formatChannelError } from "@matthias-hausberger/beige";
import type { PluginContext, PluginRegistrar } from "@matthias-hausberger/beige";
import fs from "node:fs";
import path from "node:path";

import { isSafe, type Post } from "./post.ts";

interface Config {
  agent: string;
  everySeconds: number;
  refused: string[];
}

export function createPlugin(config: Config, ctx: PluginContext) {
  const folder = path.join(ctx.dataDir, "letters");
  const post: Post = { inbox: path.join(folder, "inbox"), outbox: path.join(folder, "outbox") };
  for (const it of Object.values(post)) fs.mkdirSync(it, { recursive: true });
  let timer: ReturnType<typeof setInterval> | undefined;

  function write(name: string, text: string): void {
    if (!isSafe(name)) throw new Error(`${name} is no name for a letter`);
    fs.appendFileSync(path.join(post.outbox, `${name}.txt`), text + "\n");
  }

  async function answer(name: string): Promise<void> {
    const letter = path.join(post.inbox, `${name}.txt`);
    const text = fs.readFileSync(letter, "utf8");
    // Taken out first: what fails is not tried for ever.
    fs.rmSync(letter);
    const sessionKey = `letters:${name}`;
    try {
      const replyTo = { channel: "letters", address: name };
      write(name, await ctx.prompt(sessionKey, config.agent, text, { channel: "letters", replyTo }));
    } catch (error) {
      write(name, formatChannelError(error, ctx.getSessionSettings(sessionKey).verbose));
    }
  }

  function collect(): void {
    for (const file of fs.readdirSync(post.inbox)) {
      const name = path.basename(file, ".txt");
      if (!file.endsWith(".txt") || !isSafe(name)) continue;
      answer(name).catch((error) => ctx.log.error(`the letter of ${name}: ${error}`));
    }
  }

  return {
    register(reg: PluginRegistrar): void {
      reg.tool({
        name: "letters",
        description: "A letterbox.",
        async handler(args: string[]) {
          const [command, name, ...words] = args;
          if (command === "list" && name === undefined) {
            const names = fs.readdirSync(post.outbox).map((it) => path.basename(it, ".txt"));
            return { output: names.map((it) => it + "\n").join(""), exitCode: 0 };
          }
          if (command === "send" && name !== undefined && words.length > 0) {
            write(name, words.join(" "));
            return { output: `sent to ${name}\n`, exitCode: 0 };
          }
          return { output: "usage: letters list | letters send NAME TEXT\n", exitCode: 2 };
        },
      });
      reg.hook("prePrompt", async ({ message, channel }) => {
        const word = config.refused.find((it) => message.includes(it));
        if (channel !== "letters" || word === undefined) return { message };
        return { message, block: true, reason: `letters with the word ${word} are not read` };
      });
      reg.channel({
        supportsMessaging: () => true,
        async sendMessage(chatId, _threadId, text) {
          write(chatId, text);
        },
      });
    },

    async start(): Promise<void> {
      timer = setInterval(collect, config.everySeconds * 1000);
      ctx.log.info(`letters are collected in ${post.inbox}`);
    },

    async stop(): Promise<void> {
      clearInterval(timer);
    },
  };
}
