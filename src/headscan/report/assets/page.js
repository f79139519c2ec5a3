// The shell's script: draws the plotly figures in the reader's light or dark, switches sink tokens on and off, keeps what is
// selected (a site, a token) in the address, and draws everything once more in light before the page is printed.
"use strict";
const Headscan = (() => {
  const payload = JSON.parse(document.getElementById("data").textContent);
  const darkQuery = matchMedia("(prefers-color-scheme: dark)");
  const fine = matchMedia("(pointer: fine)").matches; // a finger that scrolls must not zoom
  const listeners = [];
  const watchers = [];
  const state = { dark: darkQuery.matches, first: "without", printing: false };
  const selected = { site: "", token: "", colour: "" };
  const later = {}; // what scripts need from the first drawing on

  // A figure is stored in light colours; dark replaces each colour by its partner wherever it stands.
  function themed(value, dark) {
    if (typeof value === "string") return dark && payload.swap[value] !== undefined ? payload.swap[value] : value;
    // Of a colour scale the entries are pairs of a number and a colour.
    if (Array.isArray(value)) return typeof value[0] === "number" && typeof value[value.length - 1] !== "string" ? value : value.map((item) => themed(item, dark));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, themed(item, dark)]));
    }
    return value;
  }

  function colour(role) {
    return payload.roles[role][isDark() ? 1 : 0];
  }

  function isDark() {
    return state.dark && !state.printing;
  }

  // What is drawn for print is lower than on the screen; the place must follow, or a gap stays below.
  function fit(place) {
    place.dataset.height ||= getComputedStyle(place).height;
    place.style.height = state.printing ? `${parseFloat(place.dataset.height) * 0.75}px` : place.dataset.height;
  }

  function draw(place) {
    const figure = payload.figures[place.dataset.figure];
    if (!figure) return;
    const { data, layout } = themed(figure, isDark());
    for (const trace of data) {
      if (trace.meta && trace.meta.first) trace.visible = trace.meta.first === state.first;
    }
    layout.shapes = [...(layout.shapes || []), ...upright(data)];
    if (fine) {
      const axes = Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key));
      axes.forEach((key) => (layout[key].fixedrange = false));
      Object.assign(layout, { dragmode: "zoom", uirevision: "stay" });
    }
    // A narrow screen has room for fewer ticks than there are layers: those stay that are far enough from the one before.
    const width = state.printing ? printWidth(place) : place.clientWidth;
    for (const axis of Object.keys(layout).filter((key) => /^xaxis/.test(key) && layout[key].tickvals).map((key) => layout[key])) {
      const at = axis.tickvals.map((value, place) => (typeof value === "number" ? value : place));
      const apart = (34 * (Math.max(...at) - Math.min(...at))) / Math.max(width - 60, 60);
      const kept = at.reduce((some, value, index) => (index && value - at[some[some.length - 1]] < apart ? some : [...some, index]), []);
      for (const name of ["tickvals", "ticktext"]) axis[name] = axis[name] && kept.map((index) => axis[name][index]);
    }
    layout.width = width;
    fit(place);
    layout.height = parseFloat(place.style.height);
    layout.autosize = false;
    Plotly.react(place, data, layout, payload.config);
    if (place.dataset.listens) return;
    place.dataset.listens = "true";
    place.on("plotly_click", (event) => {
      const site = siteOf(event.points[0].text);
      if (site) select({ site });
    });
  }

  // Points along the layers begin their words with their site: "block.3: 0.2".
  const siteOf = (words) => /^([\w.]+): /.exec(words)?.[1] ?? "";

  // Where the selected site stands on the axis of a figure: a line from bottom to top.
  function upright(data) {
    if (!selected.site || state.printing) return [];
    for (const trace of data) {
      const at = Array.isArray(trace.text) && trace.visible !== false ? trace.text.findIndex((words) => siteOf(words) === selected.site) : -1;
      if (at >= 0) {
        const line = { color: colour("accent"), width: 1, dash: "dot" };
        return [{ type: "line", x0: trace.x[at], x1: trace.x[at], yref: "paper", y0: 0, y1: 1, line, name: "selected" }];
      }
    }
    return [];
  }

  // ---- what is selected, in the address, so that a link shows the same

  function select(changes) {
    const moved = Object.keys(changes).filter((key) => selected[key] !== changes[key]);
    if (!moved.length) return;
    Object.assign(selected, changes);
    const kept = Object.entries(selected).filter(([, value]) => value);
    history.replaceState(null, "", kept.length ? `#${new URLSearchParams(kept)}` : location.pathname + location.search);
    if (moved.includes("site")) document.querySelectorAll("[data-figure].js-plotly-plot").forEach(draw);
    watchers.forEach((watcher) => watcher(moved));
  }

  function addressed() {
    if (!location.hash.includes("=")) return;
    const asked = new URLSearchParams(location.hash.slice(1));
    select(Object.fromEntries(Object.keys(selected).map((key) => [key, asked.get(key) || ""])));
  }

  // A4 between its margins; before printing, the page still has the screen's width.
  function printWidth(place) {
    return place.closest(".small-multiples, .side-by-side:has(> div + div)") ? 325 : 680;
  }

  // What is not drawn yet, each with its place; null before plotly is there.
  let waiting = null;

  function drawAll() {
    if (!waiting) return;
    waiting.length = 0;
    document.querySelectorAll("[data-figure]").forEach(draw);
    listeners.forEach(({ listener }) => listener());
  }

  // How far a place is from what the reader sees, in pixels; 0 inside.
  function away(place) {
    const { top, bottom } = place.getBoundingClientRect();
    return Math.max(0, top - innerHeight, -bottom);
  }

  // In a task of its own; where nothing of it is in view, once the page has nothing else to do.
  const turn = (hidden) => new Promise((go) => (hidden && window.requestIdleCallback ? requestIdleCallback(go, { timeout: 500 }) : setTimeout(go, 0)));

  // What draws, the nearest to the view first, with its distance; the page is usable when nothing that is in view waits.
  function queue(jobs) {
    const sorted = jobs.map((job) => ({ job, distance: job.place ? away(job.place) : 0 })).sort((a, b) => a.distance - b.distance);
    if (!sorted.length || sorted[0].distance) document.documentElement.dataset.usable ||= String(Math.round(performance.now()));
    return sorted[0];
  }

  // The first paint comes before the pictures, and these come one by one.
  async function start(jobs) {
    waiting = jobs;
    for (let first = queue(waiting); first; first = queue(waiting)) {
      await turn(first.distance);
      if (waiting.includes(first.job)) first.job.listener();
      waiting = waiting.filter((job) => job !== first.job);
    }
    document.documentElement.dataset.ready = "true";
  }

  darkQuery.addEventListener("change", (event) => {
    if (document.documentElement.dataset.theme) return; // chosen on the page
    state.dark = event.matches;
    drawAll();
  });
  let width = innerWidth;
  let resizing = 0;
  addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(() => {
      if (innerWidth === width || state.printing) return;
      width = innerWidth;
      drawAll();
    }, 120);
  });
  document.querySelectorAll("input[name=first]").forEach((input) =>
    input.addEventListener("change", () => {
      state.first = input.value;
      drawAll();
    }),
  );
  for (const [event, printing] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(event, () => {
      state.printing = printing;
      if (printing) document.querySelectorAll("details").forEach((details) => (details.open = true));
      drawAll();
    });
  }
  // Tables as they are shown, one line a value; what is rounded here is whole in result.json.
  function tables(chosen) {
    const unseen = /[\0-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
    const plain = (text) => text.trim().replace(/^[−-]?\d{1,3}(,\d{3})+$/, (digits) => digits.replaceAll(",", "")).replace(/\s+/g, " ").replace(unseen, "\ufffd").replace(/^−/, "-");
    // What a spreadsheet would take for a formula begins with ' there; numbers, ranges and shares do not.
    const safe = (text) => (/^[=+\-@]/.test(text) && /[^\d.,\s%to×+-]/.test(text) ? `'${text}` : text);
    const quoted = (text) => `"${safe(plain(text)).replace(/"/g, '""')}"`;
    const lines = ["section,table,row,column,value,interval"];
    chosen.forEach((table) => {
      const title = table.closest("section").querySelector("h2").textContent;
      const name = table.closest("[aria-label]").ariaLabel;
      const heads = [...table.tHead.rows].map((row) => [...row.cells].flatMap((cell) => Array(cell.colSpan).fill(cell.textContent)));
      for (const row of [...table.tBodies[0].rows].filter((one) => !one.hidden)) {
        [...row.cells].slice(1).forEach((cell, k) => {
          const interval = cell.querySelector("small")?.textContent ?? "";
          const column = heads.map((head) => head[k + 1]).join(" ");
          const value = interval ? cell.firstChild.textContent : cell.textContent;
          lines.push([title, name, row.cells[0].textContent, column, value, interval].map(quoted).join());
        });
      }
    });
    return lines.join("\n");
  }

  // What is embedded deflated (kit/html.py: packed), as text; a browser without DecompressionStream has the tables.
  async function inflated(id) {
    const text = document.getElementById(id).textContent;
    const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;/=>?@^_`{|}~"; // base 85
    const value = new Uint8Array(128);
    [...alphabet].forEach((letter, index) => (value[letter.charCodeAt(0)] = index));
    const bytes = new DataView(new ArrayBuffer((text.length / 5) * 4));
    for (let k = 0; 5 * k < text.length; k++) {
      let word = 0;
      for (let i = 5 * k; i < 5 * k + 5; i++) word = word * 85 + value[text.charCodeAt(i)];
      bytes.setUint32(4 * k, word);
    }
    return new Response(new Blob([bytes.buffer.slice(4, 4 + bytes.getUint32(0))]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  }

  // plotly writes style attributes as text (of <sub>, of colour bars); the page's policy allows them through CSSOM alone.
  const written = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name, value) {
    if (name === "style") this.style.cssText = value;
    else written.call(this, name, value);
  };

  async function load() {
    const packed = document.getElementById("plotly");
    const figures = [...document.querySelectorAll("[data-figure]")].map((place) => ({ place, listener: () => draw(place) }));
    const drawing = [...figures, ...listeners.filter((one) => one.place)]; // what plotly draws
    await turn(drawing.length && queue(drawing).distance);
    if (packed && packed.textContent) {
      if (!("DecompressionStream" in window)) {
        document.querySelector(".old").hidden = false;
        return;
      }
      payload.figures = JSON.parse(await inflated("figures"));
      Object.assign(later, JSON.parse(await inflated("later")));
      const script = document.createElement("script");
      script.textContent = await inflated("plotly");
      document.head.append(script);
    }
    start([...figures, ...listeners]);
  }

  function take(name, content, type = "text/plain;charset=utf-8") {
    const link = document.createElement("a");
    link.download = name;
    link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  document.querySelectorAll("[data-take]").forEach((button) =>
    button.addEventListener("click", async () => {
      const name = button.dataset.take;
      take(name, name === "tables.csv" ? tables(document.querySelectorAll("section table")) : await inflated("files"));
    }),
  );
  addEventListener("hashchange", addressed);
  addEventListener("load", () => {
    addressed();
    setTimeout(load, 0);
  });
  return {
    data: payload.data, frequency: payload.frequency, colour, isDark, state, selected, select, tables, take, inflated, later, drawAll,
    figure: (name) => themed(payload.figures[name], false),
    onDraw: (listener, place) => listeners.push({ listener, place }), // `place` is where it draws
    onSelect: (watcher) => watchers.push(watcher),
  };
})();
