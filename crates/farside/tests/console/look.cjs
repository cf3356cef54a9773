// The console in Chromium, as people use it: light and dark, narrow and wide; under load, with the wrong and the right password,
// with keys that would like to be markup, and without its server for a while.
//
//   node look.cjs CONSOLE GATEWAY PASSWORD PREFIX
//
// CONSOLE and GATEWAY are HOST:PORT; screenshots go to PREFIX-*.png. FARSIDE_BROWSER is the browser. It asks whoever has started it for
// the server to be stopped and started, a line each, and waits for a line. Says `done` at its end; whatever is wrong ends it
// with a message.
"use strict";
const assert = require("node:assert/strict");
const readline = require("node:readline");
const { chromium } = require("playwright-core");
const Redis = require("ioredis");

const [place, gateway, password, prefix] = process.argv.slice(2);
const url = `http://${place}/`;
const [host, port] = gateway.split(":");
// A busy machine takes its time.
const PATIENCE_MS = 120_000;
const ODD = "<img src=x onerror=globalThis.broken=1>";
const SCRIPT = "<script>globalThis.broken = 1</script>";
const SHAPES = [
  ["wide", { width: 1440, height: 900 }],
  ["narrow", { width: 360, height: 780 }],
];

const redis = new Redis({ host, port: Number(port), password, lazyConnect: true, retryStrategy: null });
const hexOf = (text) => Buffer.from(text).toString("hex");

// Works with the store until `waited` is done.
async function working(waited) {
  let isOver = false;
  const over = () => { isOver = true; };
  waited.then(over, over);
  while (!isOver) {
    const burst = redis.pipeline();
    for (let count = 0; count < 100; count += 1) burst.set(ODD, SCRIPT).get(ODD);
    await burst.exec();
  }
  return waited;
}

async function open(browser, options) {
  const context = await browser.newContext({ reducedMotion: "reduce", ...options });
  context.setDefaultTimeout(PATIENCE_MS);
  const tab = await context.newPage();
  const complaints = [];
  tab.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  tab.on("pageerror", (error) => complaints.push(String(error)));
  tab.on("request", (request) => {
    if (!request.url().startsWith(url)) complaints.push(`asked for ${request.url()}`);
  });
  await tab.goto(url);
  await tab.locator("#link.good").waitFor();
  return { tab, complaints, context };
}

const tile = (tab, name) => tab.locator(`#tiles > div:has(dt:text-is("${name}")) dd`);
const view = async (tab, name) => {
  await tab.getByRole("link", { name, exact: true }).click();
  await tab.getByRole("heading", { level: 1, name, exact: true }).waitFor();
};

async function login(tab, secret) {
  await tab.locator("#login-open").click();
  await tab.locator("#password").fill(secret);
  await tab.locator("#login-form").getByRole("button", { name: "Log in" }).click();
}

// Contrast, names, order of headings: what axe-core knows of accessibility, let in past the page's own rules.
async function check(tab, name) {
  const { overflow, broken, images } = await tab.evaluate(() => ({
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    broken: globalThis.broken,
    images: document.querySelectorAll("main img").length,
  }));
  assert.ok(overflow <= 0, `${name}: ${overflow} pixels are beyond the right edge`);
  assert.equal(broken, undefined, `${name}: a key was taken for a script`);
  assert.equal(images, 0, `${name}: a key was taken for markup`);
  if (!(await tab.evaluate(() => "axe" in globalThis))) await tab.addScriptTag({ path: require.resolve("axe-core/axe.min.js") });
  const { violations } = await tab.evaluate(() => globalThis.axe.run());
  const texts = violations.map((violation) => `${violation.id}: ${violation.nodes[0].html} ${violation.nodes[0].failureSummary}`);
  assert.deepEqual(texts, [], `${name}: accessible`);
}

// Every view in one shape and one scheme.
async function look(browser, shape, viewport, colorScheme) {
  const { tab, complaints, context } = await open(browser, { viewport, colorScheme, bypassCSP: true });
  await login(tab, password);
  await tab.locator("#logout").waitFor();
  await tab.locator("#chart-rate path.line").waitFor();
  for (const [name, ready] of [
    ["Overview", "#memory tbody tr:nth-child(2)"],
    ["Activity", "#slow td.number"],
    ["Keys", "#found button"],
  ]) {
    await view(tab, name);
    await tab.locator(ready).first().waitFor();
    if (name === "Keys") {
      await tab.locator("#pattern").fill("settings");
      await tab.keyboard.press("Enter");
      await tab.locator(`#found button[data-key="${hexOf("settings")}"]`).click();
      await tab.locator("#detail-body").waitFor();
    }
    await check(tab, `${name}, ${shape}, ${colorScheme}`);
    await tab.screenshot({ path: `${prefix}-${name.toLowerCase()}-${shape}-${colorScheme}.png`, fullPage: true });
  }
  await tab.getByRole("button", { name: "New key" }).click();
  await check(tab, `a dialog, ${shape}, ${colorScheme}`);
  assert.deepEqual(complaints, [], `${shape}, ${colorScheme}: the browser has nothing to complain of`);
  await context.close();
}

// Numbers move while somebody works.
async function move(tab) {
  const first = await tile(tab, "Commands").innerText();
  await tab.waitForFunction(([first]) => {
    const names = [...document.querySelectorAll("#tiles dt")];
    const text = names.find((name) => name.textContent === "Commands")?.nextElementSibling.innerText;
    return text !== first && /[1-9]/.test(text);
  }, [first]);
  const drawn = () => tab.locator("#chart-rate path.line").getAttribute("d");
  const before = await drawn();
  await tab.waitForFunction((before) => document.querySelector("#chart-rate path.line")?.getAttribute("d") !== before, before);
  assert.match(await tab.locator("#chart-read svg[role=img]").getAttribute("aria-label"), /p99 [\d.]+ (ns|µs|ms|s)/);
  assert.match(await tab.locator("#cluster svg").getAttribute("aria-label"), /node 0 over shared memory, [\d.]+ \w+ of [\d.]+ MiB used/);
  assert.match(await tab.locator("#commands tbody").innerText(), /get/);
}

// Nothing of the store is seen before the password, or after the end of the session.
async function enter(tab, complaints) {
  await view(tab, "Keys");
  assert.ok(await tab.locator("#keys .gate").isVisible());
  assert.ok(!(await tab.locator("#search").isVisible()));
  await login(tab, "wrong");
  await tab.locator("#login .wrong", { hasText: "wrong user or password" }).waitFor();
  await tab.locator("#password").fill(password);
  await tab.keyboard.press("Enter");
  await tab.locator("#logout").waitFor();
  await tab.locator("#found button").first().waitFor();
  await tab.locator("#logout").click();
  await tab.locator("#login-open").waitFor();
  assert.equal(await tab.locator("#found button").count(), 0);
  await login(tab, password);
  await tab.locator("#logout").waitFor();
  // The browser itself notes the answer to the wrong password.
  assert.deepEqual(complaints.splice(0).filter((text) => !/status of 401/.test(text)), []);
}

async function browse(tab) {
  const found = (key) => tab.locator(`#found button[data-key="${hexOf(key)}"]`);
  const done = (line) => tab.locator("#outcome", { hasText: line }).waitFor();
  await view(tab, "Keys");
  await tab.locator("#pattern").fill("<img*");
  await tab.keyboard.press("Enter");
  await found(ODD).waitFor();
  assert.equal(await found(ODD).innerText(), ODD);
  await found(ODD).click();
  await tab.locator("#detail-key", { hasText: "<img" }).waitFor();
  assert.equal(await tab.locator("#value").inputValue(), SCRIPT);

  await tab.locator("#pattern").fill("user:*");
  await tab.getByRole("button", { name: "List", exact: true }).click();
  await tab.locator("#keys-note", { hasText: "there may be more" }).waitFor();
  while (await tab.locator("#more").isVisible()) {
    const before = await tab.locator("#found button").count();
    await tab.locator("#more").click();
    await tab.waitForFunction((before) => document.querySelectorAll("#found button").length > before
      || document.getElementById("more").hidden, before);
  }
  assert.equal(await tab.locator("#found button").count(), 600);
  await tab.locator("#keys-note", { hasText: "600 shown, all there are" }).waitFor();

  // An edit, a time to live, and JSON.
  await tab.locator("#pattern").fill("settings");
  await tab.keyboard.press("Enter");
  await found("settings").click();
  await tab.locator("#detail-key", { hasText: "settings" }).waitFor();
  assert.equal(await tab.locator("#modes [aria-pressed=true]").innerText(), "JSON");
  const laid = ["{", '  "depth": 2,', '  "names": [', '    "one",', '    "{two}"', "  ],", '  "large": 12345678901234567890,', '  "none": {}', "}"];
  assert.equal(await tab.locator("#value").inputValue(), laid.join("\n"));
  await tab.locator("#value").fill('{"depth": 3');
  await tab.getByRole("button", { name: "Save value" }).click();
  await done("This is no JSON");
  await tab.locator("#value").fill('{"depth": 3}');
  await tab.getByRole("button", { name: "Save value" }).click();
  await done("Saved.");
  assert.equal(await redis.get("settings"), '{"depth": 3}');
  await tab.locator("#ttl").fill("soon");
  await tab.getByRole("button", { name: "Set expiry" }).click();
  await done("number of seconds");
  await tab.locator("#ttl").fill("100");
  await tab.getByRole("button", { name: "Set expiry" }).click();
  await done("Expiry set.");
  assert.ok((await redis.pttl("settings")) > 0);
  await tab.locator("#ttl").fill("");
  await tab.getByRole("button", { name: "Set expiry" }).click();
  await tab.locator("#detail-facts dd", { hasText: "never" }).waitFor();
  assert.equal(await redis.pttl("settings"), -1);

  // What is no text is edited as digits, and stays what it is.
  await tab.locator("#pattern").fill("binary");
  await tab.keyboard.press("Enter");
  await found("binary").click();
  await tab.locator("#detail-key", { hasText: "binary" }).waitFor();
  assert.equal(await tab.locator("#value").inputValue(), "00 ff 0d 0a");
  await tab.locator("#value").fill("00 ff 0d 0");
  await tab.getByRole("button", { name: "Save value" }).click();
  await done("hexadecimal");
  await tab.locator("#value").fill("00 FF 0d 0b");
  await tab.getByRole("button", { name: "Save value" }).click();
  await done("Saved.");
  assert.equal((await redis.getBuffer("binary")).toString("hex"), "00ff0d0b");

  // A new key; one that is there is not overwritten; and one that goes.
  await tab.getByRole("button", { name: "New key" }).click();
  await tab.locator("#create-key").fill("settings");
  await tab.locator("#create-form").getByRole("button", { name: "Create" }).click();
  await tab.locator("#create .wrong", { hasText: "already" }).waitFor();
  await tab.locator("#create-key").fill("grüße");
  await tab.locator("#create-value").fill("two\nlines");
  await tab.locator("#create-form").getByRole("button", { name: "Create" }).click();
  await done("Created.");
  assert.equal(await redis.get("grüße"), "two\nlines");
  await tab.getByRole("button", { name: "Delete …" }).click();
  await tab.getByRole("button", { name: "Keep it" }).click();
  assert.equal(await redis.exists("grüße"), 1);
  await tab.getByRole("button", { name: "Delete …" }).click();
  await tab.locator("#confirm-form").getByRole("button", { name: "Delete" }).click();
  await done("Deleted.");
  assert.equal(await redis.exists("grüße"), 0);
  await tab.getByRole("button", { name: "Count all" }).click();
  await tab.locator("#keys-note", { hasText: /\d keys in all/ }).waitFor();
}

async function watch(tab) {
  await view(tab, "Activity");
  await tab.locator("#hot tbody", { hasText: ODD }).waitFor();
  await tab.locator("#locks tbody", { hasText: "the test" }).waitFor();
  assert.match(await tab.locator("#locks tbody").innerText(), /accounts\/17/);
  await tab.locator("#slow tbody", { hasText: "SCAN" }).waitFor();
  await tab.locator("#clients tbody", { hasText: "<b>worker</b>" }).waitFor();
}

// By keyboard alone, from the top.
async function keyboard(tab) {
  await view(tab, "Overview");
  await tab.reload();
  await tab.locator("#link.good").waitFor();
  await tab.keyboard.press("Tab");
  assert.equal(await tab.evaluate(() => document.activeElement.className), "skip");
  await tab.keyboard.press("Tab");
  await tab.keyboard.press("Tab");
  const outline = await tab.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.notEqual(outline, "none", "what has the focus can be seen");
  await tab.keyboard.press("Enter");
  await tab.getByRole("heading", { level: 1, name: "Activity" }).waitFor();
}

async function colours(tab) {
  const ground = () => tab.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await ground();
  await tab.getByRole("button", { name: "Dark" }).click();
  const dark = await ground();
  assert.notEqual(dark, light, "the switch switches");
  await tab.reload();
  assert.equal(await ground(), dark, "the choice stays");
  await tab.getByRole("button", { name: "Light" }).click();
  assert.equal(await ground(), light);
}

const answers = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
async function please(line) {
  console.log(line);
  await answers.next();
}

// The server goes and comes back: the page says so, and goes on.
async function lose(tab, complaints) {
  await view(tab, "Keys");
  redis.disconnect();
  await please("stop the server");
  await tab.locator("#lost", { hasText: "does not answer" }).waitFor();
  assert.equal(await tab.locator("#link").innerText(), "no answer");
  await tab.screenshot({ path: `${prefix}-lost.png` });
  await please("start the server");
  await tab.locator("#link.good").waitFor();
  await tab.locator("#lost").waitFor({ state: "hidden" });
  // Sessions end with the server.
  await tab.locator("#login-open").waitFor();
  assert.ok(await tab.locator("#keys .gate").isVisible());
  await login(tab, password);
  await tab.locator("#found button").first().waitFor();
  complaints.splice(0);
}

async function main() {
  await redis.connect();
  await redis.set("settings", '{"depth":2,"names":["one","{two}"],"large":12345678901234567890,"none":{}}');
  await redis.client("SETNAME", "<b>worker</b>");
  await redis.set("binary", Buffer.from("00ff0d0a", "hex"));
  await Promise.all(Array.from({ length: 600 }, (_, number) => redis.set(`user:${number}`, `value ${number}`, "EX", 3600)));
  const browser = await chromium.launch({ executablePath: process.env.FARSIDE_BROWSER });
  const { tab, complaints, context } = await open(browser, { viewport: SHAPES[0][1], colorScheme: "light" });
  await working(move(tab));
  await enter(tab, complaints);
  await browse(tab);
  // What was refused on purpose was noted by the browser.
  assert.deepEqual(complaints.splice(0).filter((text) => !/status of 409/.test(text)), []);
  await working(watch(tab));
  await keyboard(tab);
  await colours(tab);
  await tab.setViewportSize({ width: 320, height: 640 });
  for (const name of ["Overview", "Activity", "Keys"]) {
    await view(tab, name);
    const beyond = await tab.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.ok(beyond <= 0, `${name}: ${beyond} pixels are beyond an edge at 320`);
  }
  await tab.setViewportSize(SHAPES[0][1]);
  assert.equal(await tab.evaluate(() => globalThis.broken), undefined, "a key was taken for a script");
  assert.deepEqual(complaints, [], "the browser has nothing to complain of");
  for (const [shape, viewport] of SHAPES) {
    for (const colorScheme of ["light", "dark"]) await look(browser, shape, viewport, colorScheme);
  }
  await lose(tab, complaints);
  await context.close();
  await browser.close();
  console.log("done");
}

main().then(() => process.exit(0), (error) => {
  console.error(error.stack ?? error);
  process.exit(1);
});
