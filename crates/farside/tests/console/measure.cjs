// What the console costs while 10 000 keys a second change: run by hand, with Chromium and playwright-core as `./test` installs them.
//
//   cargo build --release -p farside
//   NODE_PATH=target/clients/node/node_modules node crates/farside/tests/console/measure.cjs target/release/farside
//
// It starts the server, sets keys, and looks at one view after the other, in turn with nobody looking, since a machine is faster at
// one time than at another. *Server* is the processor time of `farside serve` per second, from /proc/PID/stat, with a view open less
// without; *browser* that of all processes of Chromium, which draws without a graphics card here. First paint is the
// first-contentful-paint of a browser that has nothing of the page yet, also under load.
"use strict";
const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const { readdirSync, readFileSync } = require("node:fs");
const readline = require("node:readline");
const { setTimeout: sleep } = require("node:timers/promises");
const { chromium } = require("playwright-core");
const Redis = require("ioredis");

const program = process.argv[2];
assert.ok(program, "give the program: target/release/farside");
const VIEWS = ["Overview", "Activity", "Keys"];
const KEYS = 100_000;
const RATE = 10_000;
const ROUNDS = Number(process.argv[3] ?? 5);
const ROUND_MS = 10_000;
const PAINTS = 20;
// A burst of keys each of these.
const BURST_MS = 10;
// The kernel counts processor time in hundredths.
const TICKS = 100;

// Parent and processor time of a process in seconds; the name, in brackets, may have spaces.
function read(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /, "").split(" ");
  return { parent: Number(fields[1]), seconds: (Number(fields[11]) + Number(fields[12])) / TICKS };
}

// The processor time of a process and all that it has started and that live.
function family(pid) {
  const all = new Map(readdirSync("/proc").filter((name) => /^\d+$/.test(name)).flatMap((name) => {
    try {
      return [[Number(name), read(name)]];
    } catch {
      return []; // It ended meanwhile.
    }
  }));
  const isOurs = (one) => one === pid || (all.has(one) && isOurs(all.get(one).parent));
  return [...all].filter(([one]) => isOurs(one)).reduce((sum, [, { seconds }]) => sum + seconds, 0);
}

const sorted = (numbers) => numbers.toSorted((one, other) => one - other);
const median = (numbers) => sorted(numbers)[Math.floor(numbers.length / 2)];
const percent = (part) => `${(part * 100).toFixed(2)} %`;

async function serve() {
  const server = spawn(program, ["serve", "--memory", "256MiB", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--threads", "1"],
    { stdio: ["ignore", "pipe", "inherit"] });
  const found = {};
  for await (const line of readline.createInterface({ input: server.stdout })) {
    found.gateway ??= line.match(/serves on (127\.0\.0\.1:\d+)/)?.[1];
    found.console ??= line.match(/console: http:\/\/(127\.0\.0\.1:\d+)/)?.[1];
    if (found.gateway && found.console) break;
  }
  return { server, ...found };
}

// Sets RATE keys a second until `over.is`; returns how many were set.
async function load(redis, over) {
  const value = "x".repeat(100);
  const began = performance.now();
  let count = 0;
  while (!over.is) {
    const due = ((performance.now() - began) * RATE) / 1000;
    const burst = redis.pipeline();
    for (; count < due; count += 1) burst.set(`user:${count % KEYS}`, value);
    await burst.exec();
    await sleep(BURST_MS);
  }
  return (count * 1000) / (performance.now() - began);
}

async function main() {
  const { server, gateway, console: place } = await serve();
  const [host, port] = gateway.split(":");
  const redis = new Redis({ host, port: Number(port) });
  const over = { is: false };
  const loaded = load(redis, over);
  const launched = await chromium.launchServer({ executablePath: process.env.FARSIDE_BROWSER ?? "/usr/bin/chromium" });
  const browser = await chromium.connect(launched.wsEndpoint());
  const url = `http://${place}/`;

  const paints = [];
  for (let count = 0; count < PAINTS; count += 1) {
    const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
    const tab = await context.newPage();
    await tab.goto(url);
    const paint = await tab.waitForFunction(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
    paints.push(await paint.jsonValue());
    await context.close();
  }
  console.log(`first paint, ms: median ${median(paints).toFixed(0)}, most ${sorted(paints).at(-1).toFixed(0)} of ${PAINTS}`);

  const tab = await (await browser.newContext({ viewport: { width: 1440, height: 900 } })).newPage();
  // What server and browser take per second.
  const take = async () => {
    const before = { at: performance.now(), server: read(server.pid).seconds, browser: family(launched.process().pid) };
    await sleep(ROUND_MS);
    const seconds = (performance.now() - before.at) / 1000;
    return {
      server: (read(server.pid).seconds - before.server) / seconds,
      browser: (family(launched.process().pid) - before.browser) / seconds,
    };
  };
  const alone = [];
  const looked = new Map(VIEWS.map((name) => [name, []]));
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const name of VIEWS) {
      await tab.goto("about:blank");
      await sleep(1000);
      const before = await take();
      alone.push(before.server);
      await tab.goto(`${url}#${name.toLowerCase()}`);
      await tab.getByRole("heading", { level: 1, name, exact: true }).waitFor();
      await tab.locator("#link.good").waitFor();
      await sleep(1000);
      const during = await take();
      looked.get(name).push({ server: during.server - before.server, browser: during.browser });
    }
  }
  over.is = true;
  console.log(`keys set per second: ${(await loaded).toFixed(0)}; server without the console: ${percent(median(alone))} of a core`);
  for (const [name, taken] of looked) {
    const of = (what) => taken.map((one) => one[what]);
    const [least, most] = [sorted(of("server"))[0], sorted(of("server")).at(-1)];
    console.log(`${name}: server ${percent(median(of("server")))} (${percent(least)} to ${percent(most)}), browser ${percent(median(of("browser")))}`);
  }
  await browser.close();
  await launched.close();
  redis.disconnect();
  server.kill();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
