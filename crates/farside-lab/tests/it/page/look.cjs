// Looks at a report in Chromium, as a reader would: light, dark, on a phone; scrolls, follows links, prints, zooms, hides
// lines, filters.
//
//   node look.cjs PAGE PREFIX EXPECTED
//
// PAGE is the file; screenshots go to PREFIX-*.png; EXPECTED is JSON: how many claims there are, per figure how many series
// each panel has, and whether to print and to ask axe-core, which take a while for a long page. FARSIDE_BROWSER is the
// browser. Says `done` at its end; whatever is wrong ends it with a message.
//
// What takes long is to draw every plot of a long page, and to read the page. So a tab shows both colour schemes: it goes
// over from one to the other, as it does for a reader in the evening, which also draws faster.
"use strict";
const assert = require("node:assert/strict");
const { pathToFileURL } = require("node:url");
const { chromium } = require("playwright-core");

const [page, prefix, json] = process.argv.slice(2);
const expected = JSON.parse(json);
const ids = Object.keys(expected.figures);
const panels = Object.values(expected.figures).flat();
// The figures with the most plots, which do not fit into what is near.
const most = Math.max(...Object.values(expected.figures).map((counts) => counts.length));
const long = ids.filter((id) => expected.figures[id].length === most);
const url = pathToFileURL(page).href;
const DESKTOP = { width: 1360, height: 900 };
const PHONE = { width: 390, height: 844 };
// A report with every figure is a long page, and a busy machine takes its time to draw it.
const PATIENCE_MS = 600_000;
// Pixels of a screenshot's height: the whole of a page with one figure. Of one with all it shows figures: what comes before
// them is in the other.
const SHOWN = 10_000;

async function open(browser, options, figure) {
  const context = await browser.newContext({ reducedMotion: "reduce", ...options });
  context.setDefaultTimeout(PATIENCE_MS);
  const tab = await context.newPage();
  const complaints = [];
  tab.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  tab.on("pageerror", (error) => complaints.push(String(error)));
  tab.on("request", (request) => {
    if (!/^(file|data|blob):/.test(request.url())) complaints.push(`asked for ${request.url()}`);
  });
  await tab.goto(figure ? `${url}#${figure}` : url);
  return { tab, complaints };
}

const countOfDrawn = (tab) => tab.evaluate(() => Number(document.documentElement.dataset.drawn));

// Has every plot drawn, as printing does.
async function drawAll(tab, name) {
  await tab.evaluate(() => dispatchEvent(new Event("beforeprint")));
  assert.equal(await countOfDrawn(tab), panels.length, `${name}: every plot is drawn`);
}

// Plots are drawn when a reader comes near them, and not before; `opened` is the figure that the page was opened at, if any.
async function approach(tab, name, opened) {
  // What is drawn after those `before`: what is near now, and the figure that a link has led to.
  const expectDrawn = async (before, figure) => {
    const look = ([before, figure]) => {
      const plots = [...document.querySelectorAll(".plot")];
      const isDue = (plot, index) => {
        const { top, bottom } = plot.getBoundingClientRect();
        // A screen away or less.
        const isNear = top <= 2 * innerHeight && bottom >= -innerHeight;
        return isNear || before.includes(index) || plot.dataset.figure === figure;
      };
      const due = plots.flatMap((plot, index) => (isDue(plot, index) ? [index] : []));
      const drawn = plots.flatMap((plot, index) => (plot.querySelector(".main-svg") ? [index] : []));
      return due.every((index) => drawn.includes(index)) && { due, drawn };
    };
    const found = await (await tab.waitForFunction(look, [before, figure])).jsonValue();
    assert.deepEqual(found.drawn, found.due, `${name}: plots that nobody is near to are not drawn`);
    return found.due;
  };
  let seen = await expectDrawn([], opened);
  await tab.locator(".plot").last().scrollIntoViewIfNeeded();
  seen = await expectDrawn(seen);
  // By a link. (On a phone a pointer would first have to scroll to the list of figures.)
  await tab.evaluate((id) => document.querySelector(`nav a[href="#${id}"]`).click(), long.at(-1));
  seen = await expectDrawn(seen, long.at(-1));
  assert.ok(seen.length < panels.length || ids.length === 1, `${name}: the page is long enough to see this`);
}

// Paper shows what nobody has come near to.
async function print(tab) {
  assert.ok((await countOfDrawn(tab)) < panels.length, "there is something left to draw");
  await tab.pdf();
  assert.equal(await countOfDrawn(tab), panels.length, "every plot is on paper");
}

// What must hold however the page is shown.
async function check(tab, name) {
  // Also of what is folded away at first.
  const unfold = (isOpen) => tab.evaluate((isOpen) => {
    for (const part of document.querySelectorAll("details")) part.open = isOpen;
  }, isOpen);
  await unfold(true);
  const found = await tab.evaluate(() => ({
    summary: document.querySelectorAll("#summary tbody tr").length,
    beside: document.querySelectorAll(".figure .claims tbody tr").length,
    plots: [...document.querySelectorAll(".plot")].map((plot) => {
      const marks = [...plot.querySelectorAll(".scatterlayer .trace, .barlayer .trace")];
      const size = plot.querySelector(".main-svg")?.getBoundingClientRect();
      // Lines and bars; the paper's values have neither.
      const drawn = marks.filter((mark) => mark.querySelector("path.js-line[d^=M], .point path[d^=M]"));
      // How far the marks of lines are from where their values would have them.
      const shifts = [...plot.querySelectorAll(".scatterlayer .trace")].flatMap((line, index) => {
        const { mode, x } = plot._fullData.filter((trace) => trace.type === "scatter")[index];
        const places = [...line.querySelectorAll(".point")].map((mark) => new DOMMatrix(getComputedStyle(mark).transform).e);
        return mode === "markers" ? [] : places.map((place, point) => Math.abs(place - plot._fullLayout.xaxis.d2p(x[point])));
      });
      return {
        figure: plot.dataset.figure,
        shift: Math.max(0, ...shifts),
        series: drawn.length,
        isVisible: size?.width > 200 && size?.height > 200,
        ink: plot._fullLayout.font.color,
      };
    }),
    ink: getComputedStyle(document.querySelector(".lead")).color,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  }));
  await unfold(false);
  assert.equal(found.summary, expected.claims, `${name}: a row for each claim in the summary`);
  assert.equal(found.beside, expected.claims, `${name}: a row for each claim with its figure`);
  const series = Object.fromEntries(ids.map((id) => [id, []]));
  for (const plot of found.plots) {
    assert.ok(plot.isVisible, `${name}: a plot of ${plot.figure} can be seen`);
    assert.ok(plot.shift < 0.5, `${name}: points of ${plot.figure} stand where their values are`);
    assert.equal(plot.ink, found.ink, `${name}: a plot of ${plot.figure} has the colours of the page`);
    series[plot.figure].push(plot.series);
  }
  assert.deepEqual(series, expected.figures, `${name}: every series of every panel is drawn`);
  assert.ok(found.overflow <= 0, `${name}: ${found.overflow} pixels are beyond the right edge`);
}

const background = (tab) => tab.evaluate(() => getComputedStyle(document.body).backgroundColor);

// The reader's system changes its colours; ends when the page has been told.
async function goOver(tab, colorScheme) {
  const told = tab.evaluate((wanted) => {
    const scheme = matchMedia(`(prefers-color-scheme: ${wanted})`);
    return scheme.matches || new Promise((resume) => { scheme.addEventListener("change", () => resume(true), { once: true }); });
  }, colorScheme);
  await tab.emulateMedia({ colorScheme });
  await told;
}

// Contrast, names, order of headings: what axe-core knows of accessibility. It is let in against the page's own rules,
// so in a context of its own.
async function checkAccess(browser, options) {
  const { tab } = await open(browser, { ...options, bypassCSP: true });
  await tab.addScriptTag({ path: require.resolve("axe-core/axe.min.js") });
  await tab.evaluate(() => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
  for (const scheme of ["light", "dark"]) {
    await goOver(tab, scheme);
    await drawAll(tab, scheme);
    const { violations } = await tab.evaluate(() => globalThis.axe.run({ exclude: [[".plot"]] }));
    const texts = violations.map((violation) => `${violation.id}: ${violation.nodes[0].html} ${violation.nodes[0].failureSummary}`);
    assert.deepEqual(texts, [], `${scheme}: accessible`);
  }
  await tab.context().close();
}

// What a reader does with it.
async function use(tab) {
  const rows = () => tab.locator("#summary tbody tr:visible").count();
  await tab.getByRole("button", { name: "✗ Missed" }).click();
  const missed = await rows();
  await tab.getByRole("button", { name: "✓ Hold" }).click();
  assert.equal((await rows()) + missed, expected.claims, "every claim holds or is missed");
  await tab.getByRole("button", { name: "All", exact: true }).click();
  await tab.locator("#filter-text").fill("no claim has these words");
  assert.equal(await rows(), 0, "the filter hides");
  assert.ok(await tab.locator("#filter-empty").isVisible(), "and says so");
  await tab.locator("#filter-text").fill(ids[0]);
  assert.ok((await rows()) > 0, "the filter finds");
  await tab.locator("#filter-text").fill("");

  const plot = tab.locator(".plot").first();
  await plot.scrollIntoViewIfNeeded();
  // The area of the axes lies above the points and takes the pointer.
  const area = await plot.locator(".nsewdrag").first().boundingBox();
  const at = (x, y) => [area.x + area.width * x, area.y + area.height * y];
  const points = plot.locator(".scatterlayer .point, .barlayer .point");
  const point = await points.first().boundingBox();
  await tab.mouse.move(point.x + point.width / 2, point.y + Math.min(point.height / 2, 20));
  await plot.locator(".hoverlayer text").first().waitFor();
  assert.match(await plot.locator(".hoverlayer").textContent(), /\d/, "values show under the pointer");

  const range = () => plot.evaluate((div) => JSON.stringify(div._fullLayout.yaxis.range));
  const before = await range();
  await tab.mouse.move(...at(0.2, 0.3));
  await tab.mouse.down();
  await tab.mouse.move(...at(0.7, 0.8), { steps: 5 });
  await tab.mouse.up();
  const isZoomed = ([div, before]) => JSON.stringify(div._fullLayout.yaxis.range) !== before;
  await tab.waitForFunction(isZoomed, [await plot.elementHandle(), before]);
  const log = tab.locator(".scale").first();
  const scale = () => plot.evaluate((div) => div._fullLayout.yaxis.type);
  const first = await scale();
  await log.click();
  assert.notEqual(await scale(), first, "the scale can be changed");
  await log.click();
  assert.equal(await scale(), first, "and back");

  const named = tab.locator(".plot").filter({ has: tab.locator(".legendtoggle") }).last();
  await named.scrollIntoViewIfNeeded();
  await named.locator(".legendtoggle").first().click();
  const isHidden = (div) => div._fullData.some((trace) => trace.visible === "legendonly");
  await tab.waitForFunction(isHidden, await named.elementHandle());

  const light = await background(tab);
  const ink = () => plot.evaluate((div) => div._fullLayout?.font.color);
  const usual = await ink();
  await tab.getByRole("button", { name: "Dark" }).click();
  assert.notEqual(await background(tab), light, "the switch switches");
  const isInked = ([div, before]) => ![undefined, before].includes(div._fullLayout?.font.color);
  await plot.scrollIntoViewIfNeeded();
  await tab.waitForFunction(isInked, [await plot.elementHandle(), usual]);
  const chosen = await ink();
  await tab.reload();
  assert.notEqual(await background(tab), light, "the choice stays");
  await plot.scrollIntoViewIfNeeded();
  await tab.waitForFunction(isInked, [await plot.elementHandle(), usual]);
  assert.equal(await ink(), chosen, "the plots go with it");
}

async function main() {
  const browser = await chromium.launch({ executablePath: process.env.FARSIDE_BROWSER });
  // The light page comes last, since it is used, and its reader chooses the dark. On a phone the page is opened at a figure.
  const shows = [
    [{ viewport: DESKTOP }, undefined, [["dark", "dark"], ["light", "light"]]],
    [{ viewport: PHONE, hasTouch: true, isMobile: true }, long[0], [["phone", "light"], ["phone-dark", "dark"]]],
  ];
  const backgrounds = { light: new Set(), dark: new Set() };
  for (const [options, figure, looks] of shows) {
    const [[first, colorScheme]] = looks;
    const { tab, complaints } = await open(browser, { ...options, colorScheme }, figure);
    if (expected.isShort && !figure) await print(tab);
    else await approach(tab, first, figure);
    for (const [name, scheme] of looks) {
      await goOver(tab, scheme);
      await drawAll(tab, name);
      await check(tab, name);
      backgrounds[scheme].add(await background(tab));
      const [start, end] = await tab.evaluate(() => {
        const { top } = document.querySelector(".figure").getBoundingClientRect();
        return [Math.floor(top + scrollY), document.documentElement.scrollHeight];
      });
      const y = expected.isShort ? 0 : start;
      const clip = { x: 0, y, width: options.viewport.width, height: Math.min(end - y, SHOWN) };
      await tab.screenshot({ path: `${prefix}-${name}.png`, fullPage: true, clip });
      if (name === "light") await use(tab);
      assert.deepEqual(complaints, [], `${name}: the browser has nothing to complain of`);
    }
    await tab.context().close();
    if (expected.isShort && options.viewport === DESKTOP) await checkAccess(browser, options);
  }
  for (const seen of Object.values(backgrounds)) assert.equal(seen.size, 1, "a scheme is the same on every device");
  assert.notDeepEqual(backgrounds.light, backgrounds.dark, "light and dark differ");
  await browser.close();
  console.log("done");
}

main().catch((error) => {
  console.error(error.message ?? error);
  process.exit(1);
});
