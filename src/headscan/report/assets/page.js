// The shell's script: draws the plotly figures in the reader's light or dark, switches sink tokens on and off, and draws
// everything once more in light before the page is printed.
"use strict";
const Headscan = (() => {
  const payload = JSON.parse(document.getElementById("data").textContent);
  const darkQuery = matchMedia("(prefers-color-scheme: dark)");
  const listeners = [];
  const state = { dark: darkQuery.matches, first: "without", printing: false };

  // A figure is stored in light colours; dark replaces each colour by its partner wherever it stands.
  function themed(value, dark) {
    if (typeof value === "string") return dark && payload.swap[value] !== undefined ? payload.swap[value] : value;
    if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map((item) => themed(item, dark));
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
    // A narrow screen has room for fewer ticks than there are layers.
    const width = state.printing ? printWidth(place) : place.clientWidth;
    const ticks = layout.xaxis && layout.xaxis.tickvals;
    if (ticks) {
      const step = Math.ceil((ticks.length * 34) / Math.max(width - 60, 60));
      if (step > 1) {
        layout.xaxis.tickvals = ticks.filter((_, index) => index % step === 0);
        layout.xaxis.ticktext = layout.xaxis.ticktext.filter((_, index) => index % step === 0);
      }
    }
    layout.width = width;
    fit(place);
    layout.height = parseFloat(place.style.height);
    layout.autosize = false;
    Plotly.react(place, data, layout, payload.config);
  }

  // A4 between its margins; before printing, the page still has the screen's width.
  function printWidth(place) {
    return place.closest(".small-multiples, .side-by-side:has(> div + div)") ? 325 : 680;
  }

  function drawAll() {
    document.querySelectorAll("[data-figure]").forEach(draw);
    listeners.forEach((listener) => listener());
  }

  // The first paint comes before the pictures, and the pictures come one by one; what listens is heavy and comes last.
  function start() {
    const places = [...document.querySelectorAll("[data-figure]")];
    (function next() {
      const place = places.shift();
      if (!place) {
        listeners.forEach((listener) => listener());
        document.documentElement.dataset.ready = "true";
        return;
      }
      draw(place);
      setTimeout(next, 0);
    })();
  }

  darkQuery.addEventListener("change", (event) => {
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
  // All tables as they are shown, one line a value; what is rounded here is whole in result.json.
  function tables() {
    const unseen = /[\0-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
    const plain = (text) => text.trim().replace(/\u202f/g, "").replace(/\s+/g, " ").replace(unseen, "\ufffd").replace(/^−/, "-");
    // What a spreadsheet would take for a formula begins with ' there; numbers, ranges and shares do not.
    const safe = (text) => (/^[=+\-@]/.test(text) && /[^\d.,\s%to×+-]/.test(text) ? `'${text}` : text);
    const quoted = (text) => `"${safe(plain(text)).replace(/"/g, '""')}"`;
    const lines = ["section,table,row,column,value,interval"];
    document.querySelectorAll("section table").forEach((table) => {
      const title = table.closest("section").querySelector("h2").textContent;
      const name = table.closest("[aria-label]").ariaLabel;
      const heads = [...table.tHead.rows].map((row) => [...row.cells].flatMap((cell) => Array(cell.colSpan).fill(cell.textContent)));
      for (const row of table.tBodies[0].rows) {
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
    if (packed && packed.textContent) {
      if (!("DecompressionStream" in window)) {
        document.querySelector(".old").hidden = false;
        return;
      }
      payload.figures = JSON.parse(await inflated("figures"));
      const script = document.createElement("script");
      script.textContent = await inflated("plotly");
      document.head.append(script);
    }
    start();
  }

  document.querySelectorAll("[data-take]").forEach((button) =>
    button.addEventListener("click", async () => {
      const text = button.dataset.take === "tables.csv" ? tables() : await inflated("files");
      const link = document.createElement("a");
      link.download = button.dataset.take;
      link.href = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }),
  );
  addEventListener("load", () => setTimeout(load, 0));
  return { data: payload.data, frequency: payload.frequency, colour, isDark, state, onDraw: (listener) => listeners.push(listener) };
})();
