// What a reader does with any page: sorts, filters and takes its tables, takes its pictures, turns it dark, selects a site by its
// row, and lays a second result.json beside it. Text of results only ever enters as text nodes.
"use strict";
(() => {
  const { take, tables } = Headscan;
  const LONG = 12; // rows from which on a table has a filter
  const MOST = 2000; // differing numbers shown

  function element(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function button(words, action, label) {
    const made = element("button", "link", words);
    made.type = "button";
    if (label) made.setAttribute("aria-label", label);
    made.addEventListener("click", action);
    return made;
  }

  const fileName = (words) => words.normalize("NFKD").replace(/[^\w.-]+/g, "-").replace(/^[-.]+|[-.]+$/g, "").slice(0, 60) || "headscan";

  // ---- light and dark

  const theme = document.getElementById("theme");
  const root = document.documentElement;

  function turn(dark, kept) {
    Headscan.state.dark = dark;
    if (kept) root.dataset.theme = dark ? "dark" : "light";
    theme.textContent = dark ? "light" : "dark";
    theme.setAttribute("aria-pressed", String(dark));
  }

  // A page opened from a disk may have no storage: then the choice lasts as long as the page.
  function stored(value) {
    try {
      if (value !== undefined) localStorage.setItem("headscan-theme", value);
      return localStorage.getItem("headscan-theme");
    } catch {
      return null;
    }
  }

  const before = stored();
  turn(before ? before === "dark" : Headscan.isDark(), Boolean(before));
  theme.addEventListener("click", () => {
    turn(!Headscan.state.dark, true);
    stored(root.dataset.theme);
    Headscan.drawAll();
  });
  Headscan.onDraw(() => turn(Headscan.state.dark, false));

  // ---- contents: a choice closes the list

  const contents = document.querySelector(".contents");
  contents.addEventListener("click", (event) => event.target.closest("a") && (contents.open = false));
  document.addEventListener("keydown", (event) => event.key === "Escape" && (contents.open = false));
  document.addEventListener("click", (event) => contents.contains(event.target) || (contents.open = false));

  // ---- a link to what is folded opens it

  function unfold() {
    const target = document.getElementById(location.hash.slice(1));
    const folded = target?.closest("details:not(.contents)");
    if (!folded) return;
    folded.open = true;
    target.scrollIntoView();
  }
  addEventListener("hashchange", unfold);
  addEventListener("load", unfold);

  // ---- tables

  // "−1.2", "1 024", "45 %", "<0.01": the number before the interval; NaN where a cell has none.
  function numeric(cell) {
    const words = (cell.querySelector("small") ? cell.firstChild.textContent : cell.textContent).trim();
    const found = /^[<>≥≤]?\s*([-−+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)/i.exec(words);
    return found ? Number(found[1].replace(/,/g, "").replace("−", "-")) : NaN;
  }

  function sorted(rows, column, down) {
    const keyed = rows.map((row, place) => ({ row, place, number: numeric(row.cells[column]), words: row.cells[column].textContent.trim() }));
    const numbers = keyed.filter((one) => !Number.isNaN(one.number)).length;
    const empty = (one) => one.words === "—" || one.words === "";
    const order = (a, b) => {
      if (empty(a) !== empty(b)) return empty(a) ? 1 : -1; // what is missing stays last, whichever way
      const by = numbers > rows.length / 2 ? a.number - b.number || 0 : a.words.localeCompare(b.words, "en", { numeric: true });
      return (down ? -by : by) || a.place - b.place;
    };
    return keyed.sort(order).map((one) => one.row);
  }

  function sortable(table) {
    const body = table.tBodies[0];
    const first = [...body.rows];
    const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
    heads.forEach((head, column) => {
      if (head.tagName !== "TH" || first.some((row) => !row.cells[column])) return;
      const sort = element("button", "sort");
      sort.type = "button";
      sort.append(...head.childNodes);
      head.append(sort);
      sort.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const next = now === "descending" ? "ascending" : now === "ascending" ? null : "descending";
        heads.forEach((one) => one.removeAttribute("aria-sort"));
        if (next) head.setAttribute("aria-sort", next);
        body.append(...(next ? sorted(first, column, next === "descending") : first));
      });
    });
  }

  function filter(table, name) {
    const rows = [...table.tBodies[0].rows];
    const label = element("label", "", "filter rows ");
    const field = element("input");
    const count = element("span", "soft");
    field.type = "search";
    field.size = 12;
    field.autocomplete = "off";
    field.setAttribute("aria-label", `Filter the rows of ${name}`);
    count.setAttribute("role", "status");
    field.addEventListener("input", () => {
      const wanted = field.value.trim().toLowerCase().split(/\s+/);
      rows.forEach((row) => (row.hidden = !wanted.every((word) => row.textContent.toLowerCase().includes(word))));
      count.textContent = field.value.trim() ? `${rows.filter((row) => !row.hidden).length} of ${rows.length}` : "";
    });
    label.append(field);
    return [label, count];
  }

  function equip(box) {
    const table = box.querySelector("table");
    const name = box.getAttribute("aria-label");
    const bar = element("p", "tools");
    if (table.tBodies[0].rows.length > 1) sortable(table);
    if (table.tBodies[0].rows.length > LONG) bar.append(...filter(table, name));
    const save = button("CSV", () => take(`${fileName(name)}.csv`, tables([table])), `Take ${name} as CSV`);
    save.dataset.take = "csv";
    bar.append(save);
    box.after(bar);
    table.addEventListener("click", (event) => {
      const label = event.target.closest("tbody th")?.querySelector("bdi")?.textContent;
      if (label && sites.has(label)) Headscan.select({ site: Headscan.selected.site === label ? "" : label });
    });
  }

  const boxes = [...document.querySelectorAll("[data-table]")];
  const labels = boxes.flatMap((box) => [...box.querySelectorAll("tbody th bdi")]);
  const sites = new Set(labels.map((one) => one.textContent).filter((words) => /^[\w.]*(embedding|block|norm|head|sentence)[\w.]*$/.test(words)));
  boxes.forEach(equip);
  labels.forEach((one) => sites.has(one.textContent) && one.classList.add("site"));

  function mark() {
    labels.forEach((one) => one.closest("tr").classList.toggle("here", one.textContent === Headscan.selected.site));
  }
  Headscan.onSelect(mark);
  mark();

  // ---- pictures: always the light ones, on paper

  async function picture(place, format) {
    const known = Headscan.figure(place.dataset.figure);
    const { data, layout } = known || { data: place.data, layout: place.layout };
    const [width, height] = [place.clientWidth, place.clientHeight];
    for (const trace of known ? data : []) {
      if (trace.meta && trace.meta.first) trace.visible = trace.meta.first === Headscan.state.first;
    }
    const paper = known ? "#ffffff" : Headscan.colour("paper");
    const address = await Plotly.toImage({ data, layout: { ...layout, paper_bgcolor: paper } }, { format, width, height, scale: 2 });
    const words = address.slice(address.indexOf(",") + 1);
    const svg = format === "svg";
    const content = svg ? decodeURIComponent(words) : Uint8Array.from(atob(words), (letter) => letter.charCodeAt(0));
    take(`${fileName(`${document.title}-${place.dataset.figure || "cloud"}`)}.${format}`, new Blob([content], { type: svg ? "image/svg+xml" : "image/png" }));
  }

  document.querySelectorAll("[data-figure], .scene").forEach((place) => {
    const bar = element("p", "tools of-picture");
    const name = place.getAttribute("aria-label").slice(0, 60);
    for (const format of place.dataset.figure ? ["png", "svg"] : ["png"]) {
      const save = button(format.toUpperCase(), () => picture(place, format), `Take as ${format.toUpperCase()}: ${name}`);
      save.dataset.take = format;
      bar.append(save, " ");
    }
    place.after(bar);
  });

  // ---- a second result beside this one: every number that stands at the same place in both

  const UNTOLD = /^(protocol|schema|pictures|measures|probes|terms)$/;

  const LEFT_OUT = /in the result\.json beside this page$/; // what a page says in place of a long list

  // Records of a list are told apart by their words (model, site, name ...), not by their place.
  function leaves(value, path, found, end) {
    if (typeof value === "number") found.set(path, { value, interval: end });
    else if (Array.isArray(value)) {
      if (value.length > 1000 || value.every((one) => typeof one === "number")) return;
      value.forEach((one, place) => {
        const words = one && typeof one === "object" ? Object.values(one).filter((word) => typeof word === "string" && word.length < 60 && !LEFT_OUT.test(word)) : [];
        leaves(one, `${path}[${words.slice(0, 4).join(" ") || place}]`, found);
      });
    } else if (value && typeof value === "object") {
      for (const [key, one] of Object.entries(value)) {
        if (!UNTOLD.test(key) && !key.endsWith("_interval")) leaves(one, path ? `${path} ${key}` : key, found, value[`${key}_interval`]);
      }
    }
  }

  function told({ value, interval }) {
    const words = (number) => (Number.isInteger(number) ? String(number) : Number(number.toPrecision(4)).toString()).replace("-", "−");
    const cell = element("td", "", words(value));
    if (Array.isArray(interval)) cell.append(element("small", "", interval.map(words).join(" to ")));
    return cell;
  }

  function beside(name, other, own) {
    document.getElementById("beside-section")?.remove();
    const section = element("section");
    section.id = "beside-section";
    section.setAttribute("aria-label", "A second result");
    const say = (words) => section.append(element("p", "caption", words));
    section.append(element("h2", "", `Beside ${name}`));
    document.querySelector("main").prepend(section);
    section.scrollIntoView();
    if (!other || typeof other !== "object" || !("protocol" in other)) return say("This file is no result of headscan.");
    if (other.protocol.verb !== own.protocol.verb) return say(`This page is of ${own.protocol.verb}, that file of ${other.protocol.verb}: they have no numbers in common.`);
    const [mine, theirs] = [own, other].map((one) => {
      const found = new Map();
      leaves(one, "", found);
      return found;
    });
    const common = [...mine].filter(([path]) => theirs.has(path));
    const differ = common.filter(([path, one]) => one.value !== theirs.get(path).value);
    const models = (one) => (one.models || []).map((model) => model.name).join(", ");
    if (models(own) !== models(other)) say(`This page: ${models(own)}. That file: ${models(other)}. Numbers are matched by the names of models and sites.`);
    say(`${common.length} shared numbers, ${differ.length} different${differ.length > MOST ? ` (${MOST} shown)` : ""}; ${mine.size - common.length} only in this result, ${theirs.size - common.length} only in that one.`);
    if (!differ.length) return;
    const apart = (one, two) => Array.isArray(one.interval) && Array.isArray(two.interval) && (one.interval[1] < two.interval[0] || two.interval[1] < one.interval[0]);
    differ.sort(([a, one], [b, two]) => apart(two, theirs.get(b)) - apart(one, theirs.get(a))); // numbers whose intervals are apart come first
    const box = element("div", "box");
    Object.assign(box, { tabIndex: 0 });
    box.dataset.table = "";
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `Numbers that differ from ${name}`);
    const table = element("table");
    const head = table.createTHead().insertRow();
    for (const words of ["number", "here", "there", "there minus here", "intervals"]) {
      const cell = element("th", words === "intervals" ? "text" : "", words);
      cell.scope = "col";
      head.append(cell);
    }
    const body = table.createTBody();
    for (const [path, one] of differ.slice(0, MOST)) {
      const two = theirs.get(path);
      const row = body.insertRow();
      const label = element("th");
      label.scope = "row";
      label.append(element("bdi", "", path));
      const known = Array.isArray(one.interval) && Array.isArray(two.interval);
      row.append(label, told(one), told(two), told({ value: two.value - one.value }), element("td", "text", known ? (apart(one, two) ? "apart" : "overlap") : "—"));
    }
    box.append(table);
    section.append(box);
    equip(box);
  }

  async function laid(file) {
    let other = null;
    try {
      other = JSON.parse(await file.text());
    } catch {
      // said by `beside`
    }
    beside(file.name, other, JSON.parse(await Headscan.inflated("files")));
    chooser.value = ""; // the same file may be chosen again
  }

  const chooser = document.getElementById("beside-file");
  if (!chooser) return; // a list of results has no numbers of its own
  document.getElementById("beside").addEventListener("click", () => chooser.click());
  chooser.addEventListener("change", () => chooser.files.length && laid(chooser.files[0]));
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files.length) laid(event.dataTransfer.files[0]);
  });
})();
