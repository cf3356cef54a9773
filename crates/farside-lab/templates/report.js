// Draws the plots, switches light and dark, filters the verdicts. The numbers are in the element `charts`; see
// `figure/page/chart.rs`. How many plots are drawn stands in `data-drawn` of the root element, for whoever waits for them.
"use strict";
(() => {
  const root = document.documentElement;
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const plots = [...document.querySelectorAll(".plot")];
  const isCoarse = matchMedia("(pointer: coarse)").matches;
  // Marks tell lines apart where colours do not; the second line of one colour is dashed.
  const MARKS = ["circle", "square", "triangle-up", "x", "star", "triangle-down", "pentagon", "cross", "hexagon", "hourglass"];

  // ---- colours: what the style sheet says under the present theme

  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const color = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };

  // ---- plots

  const short = (value) => {
    const prefixes = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];
    const [factor, prefix] = prefixes.find(([least]) => Math.abs(value) >= least) ?? [1, ""];
    return `${Number((value / factor).toPrecision(4))}${prefix}`;
  };

  // A name in lines of a few words, for the space below a bar.
  const wrap = (label) => label.replace(/(.{8,}?) /g, "$1<br>");

  const traces = (chart, panel) => {
    const list = panel.series.map((series) => {
      const slot = series.slot % MARKS.length;
      const shade = color(`series-${slot}`);
      const text = series.y.map(short);
      const common = { name: series.label, y: series.y, text, hovertemplate: "%{text}" };
      if (panel.form === "lines") {
        return {
          ...common, type: "scatter", mode: "lines+markers", x: series.x,
          line: { color: shade, width: 2.25, dash: series.slot < MARKS.length ? "solid" : "dash" },
          marker: { color: shade, size: 8, symbol: MARKS[slot] },
        };
      }
      const isAlone = panel.form === "bars";
      return {
        ...common, type: "bar", marker: { color: shade }, showlegend: !isAlone, textposition: "none",
        ...(isAlone
          ? { x: [series.label], hovertemplate: `%{text} with ${series.x.map(short)} ${panel.x}<extra></extra>` }
          : { x: series.x.map(short), offsetgroup: series.name }),
      };
    });
    const published = panel.published.map((value, index) => ({
      type: "scatter", mode: "markers", name: "paper", legendgroup: "paper", showlegend: index === 0,
      x: [panel.form === "lines" ? value.x : panel.form === "bars" ? value.label : short(value.x)], y: [value.y],
      ...(panel.form === "groups" ? { offsetgroup: value.series } : {}),
      marker: { symbol: "diamond", size: 12, color: color("paper"), line: { color: color("text"), width: 2.25 } }, cliponaxis: false,
      hovertemplate: `${short(value.y)} in the paper: ${value.label}<extra></extra>`,
    }));
    return list.concat(published);
  };

  const layout = (chart, panel, isLog) => {
    const axis = {
      gridcolor: color("grid"), zerolinecolor: color("line"), linecolor: color("line"), automargin: true, fixedrange: isCoarse,
    };
    const xs = [...new Set(panel.series.flatMap((series) => series.x))].sort((a, b) => a - b);
    const x = { ...axis, showgrid: panel.form === "lines" };
    if (panel.form === "bars") {
      // The value stands with the name, where nothing else is.
      x.type = "category";
      x.tickvals = panel.series.map((series) => series.label);
      x.ticktext = panel.series.map((series) => `<b>${series.y.map(short)}</b><br>${wrap(series.label)}`);
    } else if (panel.form === "groups") {
      x.type = "category";
    } else {
      x.type = panel.x_log ? "log" : "linear";
      if (panel.x_log || xs.length <= 8) {
        x.tickvals = xs;
        x.ticktext = xs.map(short);
      }
    }
    if (panel.form !== "bars") {
      x.title = { text: panel.x, font: { size: 13 }, standoff: 8 };
    }
    return {
      font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: color("soft") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 44, r: 10, t: 14, b: 36 },
      xaxis: x,
      yaxis: {
        ...axis, type: isLog ? "log" : "linear", rangemode: "tozero", nticks: 7,
        // Below a thousand "~s" would write 0.4 as 400m.
        tickformat: Math.max(...panel.series.flatMap((series) => series.y)) >= 1000 ? "~s" : "~r",
      },
      // Between bars the paper's marks stand over theirs; points of lines stay where their values are.
      barmode: "group", scattermode: panel.form === "groups" ? "group" : "overlay", bargap: 0.25, bargroupgap: 0.08,
      hovermode: panel.form === "bars" ? "closest" : "x unified",
      hoverlabel: { bgcolor: color("paper"), bordercolor: color("line"), font: { color: color("text"), size: 13 } },
      legend: { orientation: "h", x: 0, yref: "container", y: 0, yanchor: "bottom", font: { size: 12.5, color: color("text") } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: color("soft"), activecolor: color("link") },
      dragmode: isCoarse ? false : "zoom",
      showlegend: panel.form !== "bars" || panel.published.length > 0,
      // Keeps zoom and hidden lines when the theme changes.
      uirevision: isLog ? "log" : "linear",
    };
  };

  const config = {
    responsive: true, displaylogo: false, displayModeBar: isCoarse ? false : "hover",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    toImageButtonOptions: { format: "svg" },
  };

  const scaleOf = (plot) =>
    document.querySelector(`.scale[data-figure="${plot.dataset.figure}"][data-panel="${plot.dataset.panel}"]`);

  // Those that are drawn as they should look now.
  const done = new Set();
  const draw = (plot) => {
    const chart = charts[plot.dataset.figure];
    const panel = chart.panels[Number(plot.dataset.panel)];
    const isLog = scaleOf(plot).getAttribute("aria-pressed") === "true";
    Plotly.react(plot, traces(chart, panel), layout(chart, panel, isLog), config);
    done.add(plot);
    root.dataset.drawn = String(done.size);
  };

  // ---- which plots are drawn, and when: all of a long page would keep the browser busy for many seconds, so a plot is drawn
  // when it is in view or less than a screen away from it

  const near = new Set();
  // Where a link has led: its plots come first, whatever the page passes on the way there.
  let target = [];
  const distance = (plot) => {
    const { top, bottom } = plot.getBoundingClientRect();
    return Math.abs(top + bottom - innerHeight);
  };
  const next = () => {
    const isDue = (plot) => !done.has(plot);
    return target.find(isDue) ?? [...near].filter(isDue).sort((a, b) => distance(a) - distance(b))[0];
  };
  // One after the other, so that the page can be read and scrolled meanwhile.
  let isDrawing = false;
  const drawNear = async () => {
    if (isDrawing) return;
    isDrawing = true;
    for (let plot = next(); plot; plot = next()) {
      draw(plot);
      await new Promise((resume) => setTimeout(resume));
    }
    target = [];
    isDrawing = false;
  };
  const redraw = () => {
    done.clear();
    root.dataset.drawn = "0";
    drawNear();
  };
  const jump = () => {
    target = [...document.getElementById(location.hash.slice(1))?.querySelectorAll(".plot") ?? []];
    drawNear();
  };
  const scout = new IntersectionObserver((changes) => {
    for (const change of changes) near[change.isIntersecting ? "add" : "delete"](change.target);
    drawNear();
  }, { rootMargin: "100% 0px" });
  addEventListener("hashchange", jump);
  // Paper has no view to come into.
  addEventListener("beforeprint", () => {
    for (const plot of plots) if (!done.has(plot)) draw(plot);
  });

  for (const button of document.querySelectorAll(".scale")) {
    const isWide = charts[button.dataset.figure].panels[Number(button.dataset.panel)].log;
    button.setAttribute("aria-pressed", String(isWide));
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      const isSame = (plot) => scaleOf(plot) === button;
      draw(plots.find(isSame));
    });
  }

  // ---- light and dark

  const KEY = "farside-theme";
  const stored = () => {
    // A page from a file may be denied storage; then the choice lasts as long as the page is open.
    try { return localStorage.getItem(KEY) ?? "auto"; } catch { return "auto"; }
  };
  const choices = [...document.querySelectorAll("[data-theme-choice]")];
  const choose = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
    for (const button of choices) button.setAttribute("aria-pressed", String(button.dataset.themeChoice === theme));
  };
  for (const button of choices) {
    button.addEventListener("click", () => {
      choose(button.dataset.themeChoice);
      try { localStorage.setItem(KEY, button.dataset.themeChoice); } catch { /* see `stored` */ }
      redraw();
    });
  }
  choose(stored());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  // ---- the filter

  const rows = [...document.querySelectorAll("#summary tbody tr")];
  const field = document.getElementById("filter-text");
  const verdicts = [...document.querySelectorAll(".filter [data-verdict]")];
  const filter = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const verdict = verdicts.find((button) => button.getAttribute("aria-pressed") === "true").dataset.verdict;
    let count = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const isShown = (verdict === "all" || row.dataset.verdict === verdict) && words.every((word) => text.includes(word));
      row.hidden = !isShown;
      count += isShown ? 1 : 0;
    }
    document.getElementById("filter-count").textContent = `${count} of ${rows.length}`;
    document.getElementById("filter-empty").hidden = count > 0;
  };
  field.addEventListener("input", filter);
  for (const button of verdicts) {
    button.addEventListener("click", () => {
      for (const other of verdicts) other.setAttribute("aria-pressed", String(other === button));
      filter();
    });
  }

  // ---- the list of figures: where the reader is

  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const watcher = new IntersectionObserver((changes) => {
    for (const change of changes) links.get(change.target.id)?.classList.toggle("here", change.isIntersecting);
  }, { rootMargin: "-40% 0px -55% 0px" });
  for (const section of document.querySelectorAll(".figure")) watcher.observe(section);

  // ---- commands to take away

  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(button.dataset.text);
        button.textContent = "Copied";
      } catch {
        // Without the right to the clipboard, the text is marked and the reader copies it.
        getSelection().selectAllChildren(button.previousElementSibling);
        button.textContent = "Marked";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }

  root.dataset.drawn = "0";
  jump();
  for (const plot of plots) scout.observe(plot);
})();
