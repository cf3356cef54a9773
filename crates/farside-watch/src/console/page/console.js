// The console: asks its server once a second while somebody looks, and shows what it says. Whatever comes from a store is data of
// others: it becomes text, never markup.
import { Chart, amount, bar, bytes, cluster, duration, percent, seconds } from "./charts.js";

const PERIOD_MS = 1000;
const PATIENCE_MS = 6000;
const POINTS_MAX = 300;
const $ = (id) => document.getElementById(id);

// An element; children are elements or text.
function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
const cell = (text, kind) => element("td", kind ? { class: kind } : {}, text);

// Replaces the rows of a table; `empty` is said if there are none.
function fill(id, rows, empty) {
  const body = $(id).tBodies[0];
  const columns = $(id).tHead.rows[0].cells.length;
  body.replaceChildren(...(rows.length > 0 ? rows.map((cells) => element("tr", {}, ...cells))
    : [element("tr", {}, element("td", { colspan: columns, class: "quiet" }, empty))]));
}
const facts = (id, pairs) => $(id).replaceChildren(...pairs.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));

// ---- the server

class Refused extends Error {
  constructor(status, line) {
    super(line);
    this.status = status;
  }
}

async function ask(path, body) {
  const options = { signal: AbortSignal.timeout(PATIENCE_MS), cache: "no-store", credentials: "same-origin" };
  if (body !== undefined) {
    Object.assign(options, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  }
  const answer = await fetch(path, options);
  if (!answer.ok) throw new Refused(answer.status, (await answer.text()).trim() || `HTTP status ${answer.status}`);
  return answer.json();
}

let status = null;
let points = [];
let run = null;
let timer = null;
let isAsking = false;
let couldLook = false;
const charts = [
  new Chart($("chart-rate"), [{ name: "commands/s", at: 1 }], (value) => amount(value ?? 0), "Commands per second", 10),
  new Chart($("chart-read"), [{ name: "p50", at: 2 }, { name: "p99", at: 3 }], duration, "Latency of reads", 1000),
  new Chart($("chart-write"), [{ name: "p50", at: 4 }, { name: "p99", at: 5 }], duration, "Latency of writes", 1000),
];

function connection(isThere, line) {
  const state = isThere ? "live" : "no answer";
  if ($("link").textContent !== state) $("link").textContent = state;
  $("link").className = `state ${isThere ? "good" : "bad"}`;
  const text = isThere ? "" : `The server does not answer: trying again. What is shown is old. (${line})`;
  if ($("lost").textContent !== text) $("lost").textContent = text;
  $("lost").hidden = isThere;
}

async function tick() {
  clearTimeout(timer);
  if (document.hidden || isAsking) return;
  isAsking = true;
  try {
    const since = points.at(-1)?.[0] ?? 0;
    const told = await ask(`api/status?since=${run === null ? 0 : since}`);
    if (told.report.run !== run || told.report.process_id !== status?.report.process_id) {
      const all = run === null ? told : await ask("api/status?since=0");
      points = all.points;
      run = told.report.run;
    } else {
      points = points.concat(told.points).slice(-POINTS_MAX);
    }
    status = told;
    connection(true);
    show();
    if (mayLook() && view() === "activity") await activity();
    if (mayLook() && view() === "keys" && !isListed) await search();
  } catch (error) {
    if (!(error instanceof Refused)) connection(false, error.name === "TimeoutError" ? "timed out" : "nobody is there");
    else if (error.status === 401 || error.status === 503) connection(error.status === 401, error.message);
    else connection(false, error.message);
  } finally {
    isAsking = false;
    clearTimeout(timer);
    if (!document.hidden) timer = setTimeout(tick, PERIOD_MS);
  }
}
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : tick()));

// ---- overview

function show() {
  const { report, rates, kind } = status;
  $("kind").textContent = kind === "node" ? "memory node" : "console";
  const where = kind === "node" ? "" : `${report.address} · `;
  $("about").textContent = `${where}version ${report.version} · process ${report.process_id} · up ${seconds(Math.floor(report.uptime_ms / 1000))}`;
  for (const part of document.querySelectorAll("[data-gateway]")) part.hidden = kind === "node";
  access();
  if (view() !== "overview") return;
  const group = (name) => rates?.groups.find((group) => group.name === name);
  const pool = report.pool;
  const used = pool ? pool.bytes - pool.bytes_free : 0;
  const memory = ["Memory in use", pool ? bytes(used) : "unknown", pool ? `of ${bytes(pool.bytes)}` : kind === "node" && report.nodes[0]?.mirror ? "gateways know, of a mirrored node" : "the pool cannot be reached"];
  tiles(kind === "node" ? [memory, ["Free", pool ? bytes(pool.bytes_free) : "unknown", "in whole chunks"],
    ["Pool clients", pool?.clients_live ?? "–", pool?.clients_live == null ? "node 0 knows" : `room for ${pool.clients_max}`]] : [
    ["Commands", rates ? amount(rates.commands) : "–", "per second"],
    ["Read latency", duration(group("read")?.quantiles_ns[0]), `p99 ${duration(group("read")?.quantiles_ns[1])}`],
    ["Write latency", duration(group("write")?.quantiles_ns[0]), `p99 ${duration(group("write")?.quantiles_ns[1])}`],
    ["Hit rate", rates?.hit_rate == null ? "–" : percent(rates.hit_rate), "of the last second"],
    ["Errors", rates ? amount(rates.errors) : "–", "per second"],
    memory,
    ["Connections", String(report.counts.clients), `of ${report.connections_max}`],
    ["Network", rates ? `${bytes(rates.bytes_in + rates.bytes_out)}/s` : "–", rates ? `${bytes(rates.bytes_in)} in, ${bytes(rates.bytes_out)} out` : ""],
  ]);
  for (const chart of charts) chart.set(points, status.now_ms);
  cluster($("cluster"), status);
  const uses = pool ? [
    ...Object.entries(pool.bytes_by_block).map(([block, count]) => [`blocks of ${bytes(Number(block))}`, count]),
    ["large blocks", pool.bytes_large], ["index", pool.bytes_index], ["tables of the pool", pool.bytes_tables], ["free", pool.bytes_free],
  ].filter(([, count]) => count > 0) : [];
  fill("memory", uses.map(([name, count]) => [element("th", { scope: "row" }, name), cell(bytes(count), "number"), element("td", { class: "bar" }, bar(count / pool.bytes))]),
    "The pool cannot be reached.");
  fill("nodes", report.nodes.flatMap(({ place, usage, mirror }, index) => {
    const taken = usage ? usage.bytes - usage.bytes_free : 0;
    const members = (mirror?.members ?? []).map(({ address, role, lag_entries, lag_bytes }) => [
      element("th", { scope: "row", class: "text" }, `– ${address}`),
      cell({ primary: "✓ primary", backup: "✓ backup", joining: "catching up", silent: "✗ no answer" }[role] ?? role, { silent: "fail", primary: "ok", backup: "ok" }[role] ?? ""),
      cell(lag_bytes > 0 ? `${bytes(lag_bytes)} to copy` : lag_entries > 0 ? `${amount(lag_entries)} changes behind` : "–", "number")]);
    return [[element("th", { scope: "row", class: "text" }, `${index}: ${place.transport}:${place.name}`),
      cell(...(usage || mirror?.has_primary ? ["✓ reachable", "ok"] : ["✗ no answer", "fail"])), cell(usage ? `${bytes(taken)} of ${bytes(usage.bytes)}` : "–", "number")], ...members];
  }), "No node is known.");
  fill("groups", (rates?.groups ?? []).map(({ name, rate, quantiles_ns }) => [element("th", { scope: "row" }, name), cell(amount(rate), "number"),
    ...quantiles_ns.map((quantile) => cell(duration(quantile), "number"))]), "Nothing was measured yet.");
  fill("commands", (rates?.by_name ?? []).map(([name, rate]) => [element("th", { scope: "row" }, name), cell(amount(rate), "number"),
    element("td", { class: "bar" }, bar(rate / Math.max(1, rates.commands)))]), "No commands in the last second.");
  const index = report.index;
  facts("index", [["kind", index ? index.name : "unknown"], ["keys in order", index ? (index.is_ordered ? "yes" : "no") : "–"],
    ...Object.entries(index?.outline ?? {}).map(([name, count]) => [name, count.toLocaleString("en")]),
    ["memory that stays", pool ? bytes(pool.bytes_index) : "–"], ["remembered by threads", bytes(report.counts.index_cache)]]);
  const number = (count) => (count == null ? "–" : count.toLocaleString("en"));
  facts("pool", [["clients", pool?.clients_live == null ? "–" : `${pool.clients_live} live, ${pool.clients_dead} dead, room for ${pool.clients_max}`],
    ["deaths", number(pool?.deaths)], ["epoch", number(pool?.epoch)], ["blocks in use", pool?.bytes_held == null ? "–" : bytes(pool.bytes_held)],
    ...(kind === "node" ? [] : [["limit of memory", report.memory_limit == null ? "all there is" : bytes(report.memory_limit)],
      ["when it is reached", report.eviction_policy], ["evicted, expired", `${number(report.counts.evicted)}, ${number(report.counts.expired)}`],
      ["verbs per command", rates?.verbs ? rates.verbs.filter(([, count]) => count >= 0.005).map(([name, count]) => `${count.toFixed(2)} ${name}`).join(", ") : "too few commands"]])]);
}

function tiles(list) {
  $("tiles").replaceChildren(...list.map(([name, value, more]) => element("div", {}, element("dt", {}, name),
    element("dd", {}, String(value), element("small", {}, more)))));
}

// ---- who looks

const mayLook = () => status !== null && (status.access === "session" || status.access === "open");

function access() {
  const { access, user, kind } = status;
  // The session may have ended elsewhere.
  if (couldLook && !mayLook()) forget();
  couldLook = mayLook();
  $("login-open").hidden = access !== "login" || kind === "node";
  $("logout").hidden = access !== "session";
  $("who").textContent = { session: user, open: "this machine, no password", none: "numbers only" }[access] ?? "";
  for (const gate of document.querySelectorAll(".gate")) {
    const isShut = !mayLook();
    if (gate.hidden === isShut) {
      gate.hidden = !isShut;
      gate.parentElement.querySelector(".behind").hidden = isShut;
    }
    if (!isShut || gate.dataset.access === access) continue;
    gate.dataset.access = access;
    const button = element("button", { type: "button", class: "main" }, "Log in");
    button.addEventListener("click", () => open("login"));
    gate.replaceChildren(...(access === "login" ? [element("p", {}, "Keys, values and clients are shown to who has logged in."), button]
      : [element("p", {}, access === "none"
        ? "The gateway has no password, so keys, values and clients are shown only on its own machine: open the console there, at localhost."
        : "The gateway does not answer.")]));
  }
}

// ---- activity

const list = (id, part, rows, empty) => (part.refused ? fill(id, [], `Refused: ${part.refused}`) : fill(id, part.map(rows), empty));
// Bytes that would not be seen, or turn the text around, are shown by their numbers.
const visible = (text) => text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (letter) => `\\u{${letter.codePointAt(0).toString(16)}}`);

// The console itself comes from nowhere.
const end = (address) => (address === "?:0" ? "no address" : address);

async function activity() {
  const told = await ask("api/people");
  const hottest = Number(told.hot_keys[0]?.share ?? 1);
  list("hot", told.hot_keys, ({ key, share }) => [element("th", { scope: "row", class: "text mono" }, visible(key)), cell(percent(Number(share)), "number"),
    element("td", { class: "bar" }, bar(Number(share) / hottest))], "No key stands out.");
  list("locks", told.locks, ({ name, owner, mode, since_ms, in_queue }) => [element("th", { scope: "row", class: "text mono" }, visible(name)),
    cell(owner ? visible(owner) : "unknown", "text"), cell(mode), cell(since_ms > 0 ? seconds(Math.max(0, Math.floor((status.now_ms - since_ms) / 1000))) : "–", "number"),
    cell(String(in_queue), "number")], "No lock is held.");
  list("slow", told.slow, ({ unix_s, took_us, arguments: words, address, name }) => [cell(new Date(unix_s * 1000).toLocaleTimeString("en-GB")),
    cell(duration(took_us * 1000), "number"), cell(words.map(visible).join(" "), "text mono"), cell(name ? `${visible(name)} · ${end(address)}` : end(address))],
  "No command was slow.");
  list("clients", told.clients, (client) => [cell(client.id, "number"), cell(end(client.addr)), cell(visible(client.name) || "–"), cell(visible(client.user)), cell(client.cmd),
    cell(seconds(Number(client.age)), "number"), cell(seconds(Number(client.idle)), "number"), cell(visible(`${client["lib-name"]} ${client["lib-ver"]}`.trim()) || "–")],
  "Nobody is connected.");
}

// ---- keys

const encode = (text) => new TextEncoder().encode(text);
const toHex = (data) => Array.from(data, (byte) => byte.toString(16).padStart(2, "0")).join("");
const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
// What people type as digits; `null` if it is none.
function digits(text) {
  const plain = text.replace(/\s+/g, "");
  return /^([0-9a-f]{2})*$/i.test(plain) ? plain.toLowerCase() : null;
}
// The text that these bytes are, if they are any.
function textOf(data) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    return null;
  }
}
// JSON with ends of lines, and otherwise as it stands there: a number may have more digits than a script keeps.
function indent(text) {
  let [laid, depth] = ["", 0];
  const line = () => `\n${"  ".repeat(depth)}`;
  const tokens = text.match(/"(?:\\.|[^"\\])*"|[{}[\],:]|[^\s{}[\],:"]+/g);
  tokens.forEach((token, index) => {
    const isEmpty = /^[{[]$/.test(tokens[index - 1] ?? "") && /^[}\]]$/.test(token);
    if (/^[}\]]$/.test(token)) depth -= 1;
    if (/^[}\]]$/.test(token) && !isEmpty) laid += line();
    laid += token === ":" ? ": " : token;
    if (/^[{[]$/.test(token)) depth += 1;
    if (token === "," || (/^[{[]$/.test(token) && !/^[}\]]$/.test(tokens[index + 1]))) laid += line();
  });
  return laid;
}
// A key on the screen: as text if it is that, else with its odd bytes as numbers.
function keyText(hex) {
  const data = fromHex(hex);
  if (data.length === 0) return "(the empty key)";
  const text = textOf(data);
  return text === null ? Array.from(data, (byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, "0")}`)).join("") : visible(text);
}

let scan = { pattern: "2a", cursor: "0", count: 0 };
let chosen = null;
let isListed = false;

function outcome(line, isWrong) {
  $("outcome").textContent = line;
  $("outcome").className = isWrong ? "wrong" : "";
}

// Does something that may be refused, and says so.
async function attempt(action, done) {
  try {
    await action();
    if (done) outcome(done);
  } catch (error) {
    outcome(error instanceof Refused ? error.message : "The server does not answer.", true);
  }
}

const listPage = () => attempt(async () => {
  const page = await ask(`api/keys?match=${scan.pattern}&cursor=${scan.cursor}`);
  scan.cursor = page.cursor;
  scan.count += page.keys.length;
  $("found").append(...page.keys.map((hex) => {
    const button = element("button", { type: "button", "data-key": hex }, keyText(hex));
    button.addEventListener("click", () => choose(hex));
    return element("li", {}, button);
  }));
  const isEnd = page.cursor === "0";
  $("more").hidden = isEnd;
  $("keys-note").textContent = scan.count === 0 && isEnd ? "No key fits." : `${scan.count} shown${isEnd ? ", all there are" : ", there may be more"}`;
});

const search = () => {
  isListed = true;
  scan = { pattern: toHex(encode($("pattern").value || "*")), cursor: "0", count: 0 };
  $("found").replaceChildren();
  return listPage();
};
$("search").addEventListener("submit", (event) => {
  event.preventDefault();
  outcome("");
  search();
});
$("more").addEventListener("click", listPage);
$("count").addEventListener("click", () => attempt(async () => {
  $("keys-note").textContent = `${(await ask("api/count")).keys.toLocaleString("en")} keys in all`;
}));

async function choose(hex, line = "") {
  for (const button of $("found").querySelectorAll("button")) button.toggleAttribute("aria-current", button.dataset.key === hex);
  await attempt(async () => {
    try {
      const told = await ask(`api/key?key=${hex}`);
      chosen = { hex, ...told, data: fromHex(told.value) };
    } catch (error) {
      close();
      throw error;
    }
    const text = textOf(chosen.data);
    // A text field would change other ends of lines, and not show what is no letter.
    chosen.text = text !== null && !/[^\P{Cc}\n\t]/u.test(text) ? text : null;
    try {
      JSON.parse(text);
      chosen.json = chosen.text === null ? null : indent(text);
    } catch {
      chosen.json = null;
    }
    $("detail-key").textContent = keyText(hex);
    const expiry = chosen.ttl_ms === null ? "never" : `in ${seconds(Math.ceil(chosen.ttl_ms / 1000))}`;
    facts("detail-facts", [["size", bytes(chosen.bytes)], ["expires", expiry]]);
    $("ttl").value = chosen.ttl_ms === null ? "" : String(Math.ceil(chosen.ttl_ms / 1000));
    $("detail-body").hidden = false;
    $("detail-empty").hidden = true;
    const isObject = chosen.json !== null && /^\s*[[{]/.test(text);
    mode(chosen.text === null || !chosen.is_whole ? (chosen.text === null ? "hex" : "text") : isObject ? "json" : "text");
    outcome(line);
  });
}

function close() {
  chosen = null;
  $("detail-body").hidden = true;
  $("detail-empty").hidden = false;
}

function mode(name) {
  chosen.mode = name;
  for (const button of $("modes").children) {
    button.setAttribute("aria-pressed", String(button.dataset.mode === name));
    button.disabled = { text: chosen.text, json: chosen.json, hex: "" }[button.dataset.mode] === null;
  }
  const hex = () => (toHex(chosen.data).match(/.{1,32}/g) ?? []).map((line) => line.replace(/(..)/g, "$1 ").trim()).join("\n");
  $("value").value = { text: () => chosen.text, json: () => chosen.json, hex }[name]();
  $("value").readOnly = !chosen.is_whole;
  $("save").disabled = !chosen.is_whole;
  $("value-note").textContent = chosen.is_whole ? (chosen.text === null ? "This is no plain text: it is edited as hexadecimal digits."
    : name === "json" ? "Laid out for reading; saved as it stands here." : "")
    : `Only the first ${bytes(chosen.data.length)} are shown: a value as long as this cannot be edited here.`;
}
for (const button of $("modes").children) button.addEventListener("click", () => mode(button.dataset.mode));

$("save").addEventListener("click", () => attempt(async () => {
  const text = $("value").value;
  let value = toHex(encode(text));
  if (chosen.mode === "hex") value = digits(text);
  if (value === null) throw new Refused(400, "The value should be pairs of hexadecimal digits, such as 00 ff.");
  if (chosen.mode === "json") {
    try {
      JSON.parse(text);
    } catch (error) {
      throw new Refused(400, `This is no JSON: ${error.message}`);
    }
  }
  const { hex } = chosen;
  await ask("api/replace", { key: hex, value });
  await choose(hex, "Saved.");
}));
$("reload").addEventListener("click", () => choose(chosen.hex));

// Milliseconds of what was typed; `null` for never.
function milliseconds(text) {
  const plain = text.trim();
  if (plain === "") return null;
  const count = Math.round(Number(plain) * 1000);
  if (!Number.isSafeInteger(count) || count < 1) throw new Refused(400, "The time should be a number of seconds, such as 60; empty for never.");
  return count;
}
$("expiry").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(async () => {
    const { hex } = chosen;
    await ask("api/expire", { key: hex, ttl_ms: milliseconds($("ttl").value) });
    await choose(hex, "Expiry set.");
  });
});

// ---- dialogs

function open(name) {
  const dialog = $(name);
  dialog.querySelector(".wrong").textContent = "";
  dialog.showModal();
}
for (const button of document.querySelectorAll("dialog .close")) button.addEventListener("click", () => button.closest("dialog").close());
function whenSent(name, action) {
  $(`${name}-form`).addEventListener("submit", async (event) => {
    event.preventDefault();
    const wrong = $(name).querySelector(".wrong");
    wrong.textContent = "";
    try {
      await action();
      $(name).close();
    } catch (error) {
      wrong.textContent = error instanceof Refused ? error.message : "The server does not answer.";
    }
  });
}
$("login-open").addEventListener("click", () => open("login"));
whenSent("login", async () => {
  try {
    await ask("api/login", { user: $("user").value, password: $("password").value });
  } finally {
    $("password").value = "";
  }
  await again();
});
$("logout").addEventListener("click", async () => {
  await ask("api/logout", {}).catch(() => {});
  status.access = "login";
  show();
  await again();
});
$("new").addEventListener("click", () => open("create"));
whenSent("create", async () => {
  const isHex = $("create-hex").checked;
  const [key, value] = ["create-key", "create-value"].map((id) => (isHex ? digits($(id).value) : toHex(encode($(id).value))));
  if (key === null || value === null) throw new Refused(400, "Key and value should be pairs of hexadecimal digits, such as 00 ff.");
  await ask("api/create", { key, value, ttl_ms: milliseconds($("create-ttl").value) });
  $("create-form").reset();
  await search();
  await choose(key, "Created.");
});
$("delete").addEventListener("click", () => {
  $("confirm-key").textContent = keyText(chosen.hex);
  open("confirm");
});
whenSent("confirm", async () => {
  const { hex } = chosen;
  await ask("api/delete", { key: hex });
  $("found").querySelector(`[data-key="${hex}"]`)?.parentElement.remove();
  close();
  outcome("Deleted.");
});

// Nothing of what only a user may see stays on the page.
function forget() {
  close();
  outcome("");
  isListed = false;
  $("found").replaceChildren();
  $("keys-note").textContent = "";
  for (const id of ["hot", "locks", "slow", "clients"]) $(id).tBodies[0].replaceChildren();
}

// ---- views and colours

const VIEWS = ["overview", "activity", "keys"];
function view() {
  const name = location.hash.slice(1);
  return VIEWS.includes(name) ? name : "overview";
}
function turn() {
  for (const name of VIEWS) $(name).hidden = name !== view();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${view()}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${view()[0].toUpperCase()}${view().slice(1)} – Farside console`;
  again();
}
async function again() {
  if (status) show();
  await tick();
}
addEventListener("hashchange", turn);
addEventListener("resize", () => status && view() === "overview" && cluster($("cluster"), status));

const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
function colours(choice) {
  if (choice) document.documentElement.dataset.theme = choice;
  $("theme").textContent = isDark() ? "Light" : "Dark";
}
const KEPT = "farside-theme";
$("theme").addEventListener("click", () => {
  const choice = isDark() ? "light" : "dark";
  localStorage.setItem(KEPT, choice);
  colours(choice);
});
dark.addEventListener("change", () => colours());
colours(localStorage.getItem(KEPT));
turn();
