// Drawings of the console: lines over time, bars, and the picture of the cluster. Data becomes text nodes and numbers, never markup.

const SVG = "http://www.w3.org/2000/svg";

// An element of SVG; children are elements or text.
export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// A number for people, with three digits that matter.
export function amount(value, units = ["", " k", " M", " G"], step = 1000) {
  let unit = 0;
  while (Math.abs(value) >= step && unit < units.length - 1) {
    value /= step;
    unit += 1;
  }
  const digits = Number.isInteger(value) ? 0 : value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return value.toFixed(digits) + units[unit];
}
export const bytes = (value) => amount(value, [" B", " KiB", " MiB", " GiB", " TiB"], 1024);
export const duration = (ns) => (ns === null || ns === undefined ? "–" : amount(ns, [" ns", " µs", " ms", " s"]));
export const percent = (part) => `${(part * 100).toFixed(part < 0.1 ? 2 : 1)} %`;
export function seconds(count) {
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([size]) => count >= size);
  if (first < 0) return "0 s";
  const texts = parts.slice(first, first + 2).map(([size, name], index) => {
    const whole = Math.floor((index === 0 ? count : count % parts[first][0]) / size);
    return whole > 0 || index === 0 ? `${whole} ${name}` : "";
  });
  return texts.filter(Boolean).join(" ");
}

// A bar that is filled in part.
export function bar(part) {
  const width = Math.max(0, Math.min(1, part)) * 100;
  return svg("svg", { viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "track", width: 100, height: 6, rx: 1 }), svg("rect", { class: "fill", width, height: 6, rx: 1 }));
}

// The next number that is 1, 2 or 5 times a power of ten.
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((bound) => bound >= value) ?? 10 * power;
}

// How much time a chart shows: as little of it as there are points for.
const SPANS_S = [60, 120, 300];
const SPAN_MS = 300_000;
const HEIGHT = 170;

// Lines over the last minutes. `series`: names and the place of their numbers in a point; `least`: how far the scale goes at least.
export class Chart {
  constructor(holder, series, show, title, least) {
    Object.assign(this, { holder, series, show, title, least, points: [], now: 0, at: null });
    this.legend = document.createElement("div");
    this.legend.className = "legend";
    holder.addEventListener("pointermove", (event) => this.point(event));
    holder.addEventListener("pointerleave", () => this.point(null));
    new ResizeObserver(() => this.draw()).observe(holder);
  }

  point(event) {
    this.at = event ? event.clientX - this.holder.getBoundingClientRect().left : null;
    this.draw();
  }

  set(points, now) {
    this.points = points.filter(([at]) => now - at <= SPAN_MS);
    this.now = now;
    this.draw();
  }

  draw() {
    const width = Math.max(200, Math.round(this.holder.clientWidth));
    const [left, right, top, bottom] = [58, 8, 8, 20];
    const most = ceiling(Math.max(this.least, ...this.points.flatMap((point) => this.series.map(({ at }) => point[at] ?? 0))));
    const age = (this.now - (this.points[0]?.[0] ?? this.now)) / 1000;
    const span = SPANS_S.find((span) => span >= age) ?? SPAN_MS / 1000;
    const x = (ms) => left + (1 - (this.now - ms) / (span * 1000)) * (width - left - right);
    const y = (value) => top + (1 - value / most) * (HEIGHT - top - bottom);
    const drawn = [];
    for (const part of [0, 0.5, 1]) {
      const level = y(most * part);
      drawn.push(svg("line", { class: "rule", x1: left, x2: width - right, y1: level, y2: level }));
      drawn.push(svg("text", { x: left - 6, y: level + 4, "text-anchor": "end" }, this.show(most * part)));
    }
    const parts = width < 420 ? [1, 0.5, 0] : span > 120 ? [1, 0.8, 0.6, 0.4, 0.2, 0] : [1, 0.75, 0.5, 0.25, 0];
    for (const part of parts) {
      const ago = span * part;
      const anchor = part === 1 ? "start" : part === 0 ? "end" : "middle";
      const text = part === 0 ? "now" : span > 120 ? `−${ago / 60} min` : `−${ago} s`;
      drawn.push(svg("text", { x: x(this.now - ago * 1000), y: HEIGHT - 4, "text-anchor": anchor }, text));
    }
    this.series.forEach(({ at }, index) => {
      // A line is interrupted where nothing is known.
      let path = "";
      let first = null;
      let last = null;
      let isDown = false;
      for (const point of this.points) {
        const value = point[at];
        const isKnown = value !== null && value !== undefined;
        const isNear = last === null || point[0] - last < 5000;
        if (isKnown) {
          path += `${isDown && isNear ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(value).toFixed(1)}`;
          first ??= point[0];
        }
        isDown = isKnown;
        last = point[0];
      }
      if (path && index === 0 && this.series.length === 1 && path.lastIndexOf("M") === 0) {
        drawn.push(svg("path", { class: "area", d: `${path}L${x(last)} ${y(0)}L${x(first)} ${y(0)}Z` }));
      }
      if (path) drawn.push(svg("path", { class: `line ${index ? "two" : "one"}`, d: path }));
    });
    let shown = this.points.at(-1);
    if (this.at !== null && this.points.length > 0) {
      shown = this.points.reduce((best, point) => (Math.abs(x(point[0]) - this.at) < Math.abs(x(best[0]) - this.at) ? point : best));
      drawn.push(svg("line", { class: "cross", x1: x(shown[0]), x2: x(shown[0]), y1: top, y2: HEIGHT - bottom }));
    }
    const now = this.series.map(({ name, at }) => `${name} ${shown ? this.show(shown[at] ?? null) : "–"}`);
    const label = `${this.title}, a line for the last ${seconds(span)}; the last second: ${now.join(", ")}; top of the scale ${this.show(most)}`;
    const picture = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT, role: "img", "aria-label": label }, ...drawn);
    const entries = this.series.map(({ name, at }, index) => {
      const entry = document.createElement("span");
      const value = document.createElement("b");
      value.textContent = shown ? this.show(shown[at] ?? null) : "–";
      entry.append(svg("svg", { viewBox: "0 0 22 10", "aria-hidden": "true" },
        svg("line", { class: `line ${index ? "two" : "one"}`, x1: 0, x2: 22, y1: 5, y2: 5 })), `${name} `, value);
      return entry;
    });
    const when = document.createElement("span");
    when.textContent = this.at !== null && shown ? `${Math.round((this.now - shown[0]) / 1000)} s ago` : "";
    this.legend.replaceChildren(...entries, when);
    this.holder.replaceChildren(picture, this.legend);
  }
}

const shorten = (text, most) => (text.length > most ? `…${text.slice(1 - most)}` : text);

// Who reaches which memory, and how: clients, this gateway, other clients of the pool, memory nodes.
export function cluster(holder, { kind, report }) {
  const width = Math.max(260, Math.round(holder.clientWidth));
  const isNarrow = width < 640;
  const nodes = report.nodes;
  const others = Math.max(0, (report.pool?.clients_live ?? 0) - report.threads);
  const [boxHeight, gap] = [64, 16];
  const lefts = [];
  if (kind === "gateway") {
    const count = report.counts.clients;
    lefts.push({ title: `${count} ${count === 1 ? "connection" : "connections"}`, text: "Redis clients of this gateway", into: true });
    lefts.push({ title: "this gateway", text: `${report.address} · ${report.threads} ${report.threads === 1 ? "thread" : "threads"}`, self: true });
    if (others > 0) lefts.push({ title: `${others} more`, text: "clients of the pool: gateways, programs" });
  } else {
    const live = report.pool?.clients_live;
    lefts.push({ title: live === undefined || live === null ? "clients of the pool" : `${live} ${live === 1 ? "client" : "clients"} of the pool`, text: "gateways and programs" });
  }
  const rows = Math.max(lefts.length, nodes.length, 1);
  const boxWidth = isNarrow ? width - 4 : Math.min(330, (width - 130) / 2);
  const drawn = [];
  const wires = [];
  const place = (index, count, column) => {
    if (isNarrow) return { x: 2, y: 4 + ((column ? lefts.length : 0) + index) * (boxHeight + gap + (column ? 12 : 6)) + (column ? 20 : 0) };
    const offset = ((rows - count) * (boxHeight + gap)) / 2;
    return { x: column ? width - boxWidth - 4 : 4, y: 4 + offset + index * (boxHeight + gap) };
  };
  const letters = Math.floor(boxWidth / 7.6);
  lefts.forEach((left, index) => {
    const at = place(index, lefts.length, 0);
    Object.assign(left, at);
    drawn.push(svg("rect", { class: `box ${left.self ? "self" : ""}`, x: at.x, y: at.y, width: boxWidth, height: boxHeight, rx: 10 }));
    drawn.push(svg("text", { x: at.x + 14, y: at.y + 27, "font-weight": 600 }, left.title));
    drawn.push(svg("text", { class: "small", x: at.x + 14, y: at.y + 47 }, shorten(left.text, letters)));
  });
  const texts = [];
  nodes.forEach(({ place: where, usage }, index) => {
    const at = place(index, nodes.length, 1);
    const used = usage ? usage.bytes - usage.bytes_free : 0;
    const state = usage ? `${bytes(used)} of ${bytes(usage.bytes)} used` : "no answer";
    const isOwn = kind === "node";
    const name = isOwn ? "this node" : `node ${index}`;
    const way = isOwn ? "" : ({ shm: "shared memory", tcp: "TCP", rdma: "RDMA" }[where.transport] ?? where.transport);
    texts.push(isOwn ? `${name}, ${state}` : `${name} over ${way}, ${state}`);
    drawn.push(svg("rect", { class: `box ${usage ? "" : "gone"}`, x: at.x, y: at.y, width: boxWidth, height: boxHeight, rx: 10 }));
    drawn.push(svg("text", { x: at.x + 14, y: at.y + 20, "font-weight": 600 }, name));
    drawn.push(svg("text", { class: "small", x: at.x + (isOwn ? 88 : 70), y: at.y + 20 }, shorten(where.name, letters - 12)));
    drawn.push(svg("text", { class: usage ? "small" : "alarm", x: at.x + 14, y: at.y + 38 }, `${usage ? "✓" : "✗"} ${state}`));
    const inner = boxWidth - 28;
    drawn.push(svg("rect", { class: "track", x: at.x + 14, y: at.y + 47, width: inner, height: 7, rx: 3 }));
    if (usage) drawn.push(svg("rect", { class: "fill", x: at.x + 14, y: at.y + 47, width: (inner * used) / Math.max(1, usage.bytes), height: 7, rx: 3 }));
    const sources = lefts.filter((left) => !left.into);
    sources.forEach((left, number) => {
      if (isNarrow && number > 0) return;
      const [x1, y1] = isNarrow ? [at.x + boxWidth / 2, at.y - 24] : [left.x + boxWidth, left.y + boxHeight / 2];
      const [x2, y2] = isNarrow ? [at.x + boxWidth / 2, at.y] : [at.x, at.y + boxHeight / 2];
      const middle = (x1 + x2) / 2;
      const path = isNarrow ? `M${x1} ${y1}L${x2} ${y2}` : `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
      wires.push(svg("path", { class: `wire ${usage ? "" : "gone"}`, d: path }));
    });
    if (isNarrow) drawn.push(svg("text", { class: "small", x: at.x + boxWidth / 2 + 8, y: at.y - 8 }, way));
    else if (way) {
      const middle = (4 + boxWidth + at.x) / 2;
      const label = at.y + boxHeight / 2;
      const wide = way.length * 7.4 + 12;
      drawn.push(svg("rect", { class: "tag", x: at.x - wide - 12, y: label - 10, width: wide, height: 20 }));
      drawn.push(svg("text", { class: "small", x: Math.max(middle - 30, at.x - 17), y: label + 4, "text-anchor": "end" }, way));
    }
  });
  if (lefts.length > 1 && kind === "gateway") {
    const [from, to] = lefts;
    wires.push(svg("path", { class: "wire", d: `M${from.x + boxWidth / 2} ${from.y + boxHeight}L${to.x + boxWidth / 2} ${to.y}` }));
  }
  const height = isNarrow
    ? place(nodes.length - 1, nodes.length, 1).y + boxHeight + 4
    : rows * (boxHeight + gap) - gap + 8;
  const label = `${lefts.map(({ title, text }) => `${title}, ${text}`).join("; ")}; ${texts.join("; ")}`;
  holder.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label }, ...wires, ...drawn));
}
