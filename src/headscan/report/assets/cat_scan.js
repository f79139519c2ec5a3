// The CAT scan: the sampled tokens of each model on each site's top three directions, one slider over the layers.
"use strict";
(() => {
  const clouds = Headscan.data.clouds;
  const scanner = document.getElementById("scanner");
  if (!scanner) return;
  const slider = document.getElementById("layer");
  const layerName = document.getElementById("layer-name");
  const play = document.getElementById("play");
  const find = document.getElementById("find");
  const far = document.getElementById("far");
  const choose = document.getElementById("colour");
  const named = document.getElementById("labels");
  const tip = document.getElementById("tip");
  const steps = Math.max(...clouds.map((cloud) => cloud.sites.length));
  const FILM = 28; // pictures in the strip at most
  const webgl = hasWebGL();
  const frequencies = clouds.flatMap((cloud) => cloud.frequency).filter((count) => count > 0);
  const column = Headscan.data.column; // of a table, where it colours the dots; its legend, or the ends of its scale
  const standard = column ? "column" : "frequency";
  const shown = new Set(); // the codes of the legend that are singled out; none: all are
  const LABELS = 40; // names drawn in a cloud at most
  const HITS = 10; // tokens found that are listed
  const AROUND = 16; // characters on either side of them

  function hasWebGL() {
    try {
      return Boolean(document.createElement("canvas").getContext("webgl"));
    } catch {
      return false;
    }
  }

  // ---- data

  function unpack(slide) {
    if (slide.rows) return slide.rows;
    const bytes = Uint8Array.from(atob(slide.points), (letter) => letter.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    slide.rows = [];
    for (let at = 0; at < bytes.length; at += 6) {
      const whole = [0, 2, 4].map((offset) => view.getInt16(at + offset, true));
      slide.rows.push(whole[0] === -32768 ? [NaN, NaN, NaN] : whole.map((value) => value * slide.scale));
    }
    return slide.rows;
  }

  // A few tokens with huge vectors (attention sinks) would press all others into one dot: when the
  // longest is far beyond nearly all, the box holds nearly all and the caption says how many stand outside.
  function frame(cloud, slide) {
    const counted = (_, index) => Headscan.state.first === "with" || !slide.sinks.includes(index);
    const rows = unpack(slide).filter((row, index) => Number.isFinite(row[0]) && counted(row, index));
    const radii = rows.map((row) => Math.hypot(...row)).sort((a, b) => a - b);
    const usual = radii[Math.floor((radii.length - 1) * 0.92)] || 1;
    const limit = !far.checked && radii[radii.length - 1] > 2 * usual ? 1.3 * usual : Infinity;
    const inside = rows.filter((row) => Math.hypot(...row) <= limit);
    const low = [0, 1, 2].map((axis) => Math.min(0, ...inside.map((row) => row[axis])));
    const high = [0, 1, 2].map((axis) => Math.max(0, ...inside.map((row) => row[axis])));
    // One scale for all axes, but a box no larger than the cloud; never so thin that it could not be turned.
    const longest = Math.max(...low.map((value, axis) => high[axis] - value), 1e-12);
    const ranges = low.map((value, axis) => {
      const half = 0.53 * Math.max(high[axis] - value, 0.25 * longest);
      const middle = (value + high[axis]) / 2;
      return [middle - half, middle + half];
    });
    const points = unpack(slide).map((row, index) =>
      Math.hypot(...row) <= limit && counted(row, index) ? row : [NaN, NaN, NaN],
    );
    return { points, ranges, outside: rows.length - inside.length, times: radii[radii.length - 1] / usual };
  }

  const slideIndex = (cloud, step) => (steps < 2 ? 0 : Math.round((step * (cloud.sites.length - 1)) / (steps - 1)));

  // ---- colour: what a dot's colour says, as one number a token; and the ends of the scale

  const SCALES = {
    frequency: { words: "times in the text", ends: [Math.log10(Math.min(...frequencies, 1e9)), Math.log10(Math.max(...frequencies, 1))], shown: (end) => Math.round(10 ** end) },
    position: { words: "place in its window", ends: [0, Math.max(...clouds.flatMap((cloud) => cloud.position.map((place) => place ?? 0)), 1)], shown: (end) => end },
    density: { words: "neighbours within a tenth of the box, of the most there", ends: [0, 1], shown: (end) => (end ? "100 %" : "0 %") },
    sink: { words: "sink token (longer than three times the median of its window)", ends: [0, 1], shown: (end) => (end ? "yes" : "no") },
    ...(column && { column: { words: column.name, ends: [0, 1], shown: (end) => column.ends[end] } }),
  };
  const byLegend = () => choose.value === "column" && Boolean(column.legend);

  function colours(cloud, slide, points, ranges) {
    const number = clouds.indexOf(cloud);
    if (byLegend()) return column.codes[number].map((code) => (shown.size && !shown.has(code) ? Headscan.colour("hairline") : ofLegend(code)));
    const { ends } = SCALES[choose.value];
    const reach = 0.1 * Math.max(...ranges.map(([low, high]) => high - low));
    const near = (row) => points.filter((other) => Math.hypot(row[0] - other[0], row[1] - other[1], row[2] - other[2]) <= reach).length;
    const counts = choose.value === "density" ? points.map((row) => Math.max(near(row) - 1, 0)) : [];
    const most = Math.max(...counts, 1);
    const value = {
      frequency: (index) => (cloud.frequency[index] > 0 ? Math.log10(cloud.frequency[index]) : ends[0]),
      position: (index) => cloud.position[index] ?? 0,
      density: (index) => counts[index] / most,
      sink: (index) => Number(slide.sinks.includes(index)),
      column: (index) => column.shares[number][index],
    }[choose.value];
    return points.map((_, index) => {
      if (value(index) === null) return Headscan.colour("muted");
      return colourOf(ends[1] > ends[0] ? (value(index) - ends[0]) / (ends[1] - ends[0]) : 0);
    });
  }

  // The first values of a legend are circles, the next ones in the same colours diamonds; what has no colour of its own is grey.
  function ofLegend(code) {
    const { colour } = column.legend[code];
    return colour < 0 ? Headscan.colour("muted") : column.palette[colour % column.palette.length][Headscan.isDark() ? 1 : 0];
  }

  const isDiamond = (code) => column.legend[code].colour >= column.palette.length;
  const diamonds = (cloud) => (byLegend() ? column.codes[clouds.indexOf(cloud)].map(isDiamond) : undefined);

  const faint = (cloud) => (byLegend() && shown.size ? column.codes[clouds.indexOf(cloud)].map((code) => !shown.has(code)) : undefined);

  // A button of the legend singles out its value; several may be.
  const legend = scanner.querySelector(".column-legend");
  const keys = [...scanner.querySelectorAll(".column-legend button")];
  for (const key of keys) {
    key.addEventListener("click", () => {
      const code = Number(key.dataset.code);
      if (!shown.delete(code)) shown.add(code);
      key.setAttribute("aria-pressed", String(shown.has(code)));
      redraw();
    });
  }

  function colourOf(share) {
    const scale = Headscan.frequency[Headscan.isDark() ? 1 : 0];
    const place = Math.min(Math.max(share, 0), 1) * (scale.length - 1);
    const low = Math.min(Math.floor(place), scale.length - 2);
    const part = place - low;
    const channel = (hex, at) => parseInt(hex.slice(at, at + 2), 16);
    const mixed = [1, 3, 5].map((at) => Math.round(channel(scale[low], at) * (1 - part) + channel(scale[low + 1], at) * part));
    return `rgb(${mixed.join(",")})`;
  }

  // ---- words; untrusted text only ever enters as text nodes

  function element(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // Tokens come with their spaces made visible; in a sentence these stand back, and lines may break after them.
  function spaced(parent, text) {
    text.split("\u2423").forEach((part, at) => {
      if (at) parent.append(element("span", "space", "\u2423"), document.createElement("wbr"));
      parent.append(part);
    });
  }

  function describe(cloud, index) {
    const line = element("bdi", "context");
    const mark = element("mark");
    spaced(mark, cloud.tokens[index]);
    const { before, after, values } = Headscan.later.contexts[clouds.indexOf(cloud)];
    spaced(line, before[index] ?? "");
    line.append(mark);
    spaced(line, after[index] ?? "");
    const count = cloud.frequency[index];
    const facts = [];
    if (values) facts.push(`${column.name}: ${values[index]}`);
    if (count) facts.push(`${count.toLocaleString("en")} times in the text`);
    if (cloud.position[index] !== null) facts.push(`position ${cloud.position[index]}`);
    if (cloud.id[index] !== null && cloud.id[index] >= 0) facts.push(`id ${cloud.id[index]}`);
    return [line, element("span", "soft", facts.join(" · "))];
  }

  // ---- one panel a model

  class Panel {
    constructor(root, cloud) {
      this.cloud = cloud;
      this.scene = root.querySelector(".scene");
      this.still = root.querySelector(".still");
      this.site = root.querySelector(".site");
      this.readout = root.querySelector(".readout");
      this.lists = root.querySelector(".lists");
      this.pinned = null;
      this.step = null;
      this.pointer = this.pressed = [0, 0];
      this.hovered = null;
      this.film = this.makeFilm(root.querySelector(".film"));
      this.scene.addEventListener("pointermove", (event) => (this.pointer = [event.clientX, event.clientY]));
      this.scene.addEventListener("pointerdown", (event) => (this.pressed = this.pointer = [event.clientX, event.clientY]));
      // plotly's 3-D click comes out of its drawing loop, again and again while the button is down: not to be used.
      if (webgl) this.scene.addEventListener("pointerup", (event) => this.release(event), true);
      this.scene.addEventListener("pointerleave", hideTip);
    }

    makeFilm(list) {
      const every = Math.ceil(this.cloud.sites.length / FILM);
      const kept = this.cloud.sites.map((slide, index) => ({ slide, index })).filter(({ index }) => index % every === 0);
      return kept.map(({ slide, index }) => {
        const item = element("li");
        const button = element("button");
        button.type = "button";
        button.tabIndex = -1; // the slider does the same for the keyboard
        button.setAttribute("aria-label", slide.site);
        const canvas = element("canvas");
        canvas.width = canvas.height = 176;
        button.append(canvas, element("span", "", slide.label));
        button.title = slide.site;
        button.addEventListener("click", () => {
          slider.value = Math.round((index * (steps - 1)) / Math.max(this.cloud.sites.length - 1, 1));
          show();
        });
        item.append(button);
        list.append(item);
        return { button, canvas, slide, index };
      });
    }

    drawFilm() {
      for (const { canvas, slide } of this.film) this.flat(canvas, slide, 2.1, 0.02);
    }

    flat(canvas, slide, size, rays) {
      const { points, ranges } = frame(this.cloud, slide);
      Projection.draw(canvas, { points, ranges, colours: colours(this.cloud, slide, points, ranges), ink: Headscan.colour("ink"), size, rays, diamonds: diamonds(this.cloud) });
    }

    async draw(step) {
      this.step = step;
      const index = slideIndex(this.cloud, step);
      const slide = this.cloud.sites[index];
      const { points, ranges, outside, times } = frame(this.cloud, slide);
      this.film.forEach((frame) => frame.button.setAttribute("aria-current", String(frame.index === index)));
      const cosine = Headscan.state.first === "with" ? slide.cosine : slide.without;
      const shares = slide.shares.map((share) => `${Math.round(share * 100)} %`).join(", ");
      const words = [`${slide.site}: average cosine ${cosine}`];
      if (shares) words.push(`the directions carry ${shares}`);
      if (outside) words.push(`${outside} token${outside > 1 ? "s" : ""} outside the box, up to ${times.toFixed(0)} times as far`);
      this.site.textContent = words.join("; ");
      this.scene.setAttribute("aria-label", `${this.cloud.tokens.length} sampled tokens of ${this.cloud.name}. ${words.join("; ")}.`);
      if (Headscan.isDark() || !Headscan.state.printing) {
        this.colours = colours(this.cloud, slide, points, ranges);
        const { data, layout } = webgl ? this.solid(points, ranges) : this.plane(points, ranges);
        await Plotly.react(this.scene, data, layout, { displayModeBar: false, displaylogo: false, scrollZoom: false, responsive: false });
        if (!this.listening) this.listen();
      }
      this.list();
    }

    // What was found, each a button that follows it; and the neighbours of the followed one, where this layer puts it.
    list() {
      const found = this.found();
      const { near, note } = this.pinned === null ? { near: [], note: "" } : this.neighbours(slideIndex(this.cloud, this.step));
      const { before, after } = Headscan.later.contexts[clouds.indexOf(this.cloud)];
      const item = (index, words) => {
        const one = element("li");
        const follow = element("button", "link");
        follow.type = "button";
        const mark = element("bdi", "context");
        spaced(mark, (before[index] ?? "").slice(-AROUND));
        const itself = element("b");
        spaced(itself, this.cloud.tokens[index]);
        mark.append(itself);
        spaced(mark, (after[index] ?? "").slice(0, AROUND));
        follow.append(mark);
        follow.addEventListener("click", () => this.pin(index));
        one.append(element("span", "soft", words), follow);
        return one;
      };
      const titled = (title, items, note) => {
        if (!items.length && !note) return [];
        const list = element("ol");
        list.append(...items);
        return [element("h4", "", title), ...(note ? [element("p", "soft", note)] : []), list];
      };
      const more = found.length > HITS ? `The first ${HITS} of ${found.length}.` : "";
      const none = wanted() && !found.length ? "Not among the sampled tokens." : more;
      const place = (index) => (this.cloud.position[index] === null ? "" : `at ${this.cloud.position[index]}: `);
      this.lists.replaceChildren(
        ...titled("Found, at its place in the window", found.slice(0, HITS).map((index) => item(index, place(index))), wanted() ? none : ""),
        ...titled("Nearest in all dimensions, by cosine", near.map(([index, cosine]) => item(index, `${cosine.toFixed(2)}: `)), note),
      );
    }

    // The ten nearest of the followed token at a site: rows and cosines; of a deep model the page holds those of some tokens.
    neighbours(at) {
      const { near, kept } = Headscan.later;
      const packed = near?.[clouds.indexOf(this.cloud)]?.[at];
      if (!packed) return { near: [], note: "" };
      const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
      const all = bytes.length / 3;
      const each = all / Math.min(kept, this.cloud.tokens.length);
      const found = [];
      for (let k = this.pinned * each, cosine = 0; k < (this.pinned + 1) * each && k < all; k++) {
        const row = ((bytes[k] | (bytes[all + k] << 8)) << 16) >> 16;
        cosine += (bytes[2 * all + k] << 24) >> 24;
        if (row >= 0) found.push([row, cosine / 100]);
      }
      return { near: found, note: this.pinned < kept ? "" : `This page holds the neighbours of the first ${kept} sampled tokens; the arrays beside it those of all.` };
    }

    listen() {
      this.listening = true;
      this.scene.on("plotly_hover", (event) => {
        const index = event.points[0].customdata;
        if (typeof index !== "number") return;
        this.hovered = index;
        showTip(describe(this.cloud, index), this.pointer);
      });
      this.scene.on("plotly_unhover", () => {
        this.hovered = null;
        hideTip();
      });
      // One camera for all clouds: who turns one turns all.
      this.scene.on("plotly_relayout", (event) => {
        const camera = event["scene.camera"];
        if (!camera || turning) return;
        turning = true;
        const others = panels.filter((panel) => panel !== this && panel.listening);
        Promise.all(others.map((panel) => Plotly.relayout(panel.scene, { "scene.camera": camera }))).finally(() => (turning = false));
      });
      if (!webgl) this.scene.on("plotly_click", () => this.hovered !== null && this.pin(this.hovered));
    }

    release(event) {
      const moved = Math.hypot(event.clientX - this.pressed[0], event.clientY - this.pressed[1]);
      const index = this.hovered;
      if (moved < 4 && index !== null) setTimeout(() => this.pin(index), 0);
    }

    pin(index) {
      this.pinned = this.pinned === index ? null : index;
      this.readout.replaceChildren(...(this.pinned === null ? [] : describe(this.cloud, this.pinned)));
      this.draw(this.step);
    }

    found() {
      return wanted() ? [...this.cloud.tokens.keys()].filter((index) => plainToken(this.cloud.tokens[index]) === wanted()) : [];
    }

    chosen() {
      return [...new Set([...(this.pinned === null ? [] : [this.pinned]), ...this.found()])];
    }

    // Names beside some dots: what is chosen, then each word once. What plotly would read as markup can be pointed at.
    labels(points) {
      const names = new Map();
      for (const index of [...this.chosen(), ...(named.checked ? points.keys() : [])]) {
        const name = plainToken(this.cloud.tokens[index]);
        const fit = name && !/[<>&$%]/.test(name) && Number.isFinite(points[index][0]);
        if (fit && names.size < LABELS && !names.has(name)) names.set(name, index);
      }
      return { text: [...names.keys()], at: [...names.values()].map((index) => points[index]) };
    }

    markers(points, size) {
      const searching = wanted() !== "";
      const sizes = faint(this.cloud)?.map((one) => (one ? 0.4 * size : size)) ?? size;
      const symbol = diamonds(this.cloud)?.map((one) => (one ? "diamond" : "circle"));
      return {
        mode: "markers", hoverinfo: "none", customdata: points.map((_, index) => index),
        marker: { size: sizes, color: this.colours, symbol, opacity: searching ? 0.25 : 0.92, line: { width: 0 } },
      };
    }

    solid(points, ranges) {
      const axis = (direction) => points.map((row) => row[direction]);
      const rays = [[], [], []];
      for (const row of points) {
        if (Number.isFinite(row[0])) row.forEach((value, direction) => rays[direction].push(0, value, null));
      }
      const chosen = this.chosen();
      const labels = this.labels(points);
      const pick = (direction) => chosen.map((index) => points[index][direction]);
      const ink = Headscan.colour("ink");
      const lengths = ranges.map(([low, high]) => high - low);
      // The camera's angle is fixed upwards, so a narrow picture must stand further off.
      const aspect = this.scene.clientWidth / Math.max(this.scene.clientHeight, 1);
      const unit = (1.2 * Math.min(Math.max(aspect, 0.5), 2) ** 0.67) / Math.hypot(...lengths);
      const [x, y, z] = [0, 1, 2].map(axis);
      const data = [
        { type: "scatter3d", mode: "lines", x: rays[0], y: rays[1], z: rays[2], line: { color: Headscan.colour("muted"), width: 1 },
          opacity: 0.16, hoverinfo: "skip" },
        { type: "scatter3d", x, y, z, ...this.markers(points, 4) },
        { type: "scatter3d", mode: "markers", x: [0], y: [0], z: [0], hoverinfo: "skip",
          marker: { size: 9, symbol: "circle-open", color: ink, line: { width: 3, color: ink } } },
        { type: "scatter3d", mode: "markers", x: pick(0), y: pick(1), z: pick(2), hoverinfo: "none", customdata: chosen,
          marker: { size: 10, symbol: "circle-open", color: Headscan.colour("accent"), line: { width: 3 } } },
        { type: "scatter3d", mode: "text", x: labels.at.map((row) => row[0]), y: labels.at.map((row) => row[1]), z: labels.at.map((row) => row[2]),
          text: labels.text, textposition: "top center", textfont: { size: 11, color: ink }, hoverinfo: "skip" },
      ];
      const look = (direction) => ({
        range: ranges[direction], title: { text: `direction ${direction + 1}`, font: { size: 11 } }, color: Headscan.colour("muted"),
        gridcolor: Headscan.colour("hairline"), zeroline: false, showbackground: false, showspikes: false, nticks: 4,
        tickfont: { size: 10 }, tick0: 0, dtick: nice(Math.max(...lengths) / 3),
      });
      const layout = {
        ...this.base(), uirevision: "stay",
        scene: {
          xaxis: look(0), yaxis: look(1), zaxis: look(2), aspectmode: "manual",
          aspectratio: { x: lengths[0] * unit, y: lengths[1] * unit, z: lengths[2] * unit }, dragmode: "orbit", uirevision: "stay", bgcolor: "rgba(0,0,0,0)",
          camera: { eye: { x: Projection.EYE[0], y: Projection.EYE[1], z: Projection.EYE[2] }, center: { x: 0, y: 0, z: -0.08 } },
        },
      };
      return { data, layout };
    }

    plane(points, ranges) {
      const chosen = this.chosen();
      const labels = this.labels(points);
      const ink = Headscan.colour("ink");
      const data = [
        { type: "scatter", x: points.map((row) => row[0]), y: points.map((row) => row[1]), ...this.markers(points, 6) },
        { type: "scatter", mode: "markers", x: [0], y: [0], hoverinfo: "skip",
          marker: { size: 12, symbol: "circle-open", color: ink, line: { width: 2, color: ink } } },
        { type: "scatter", mode: "markers", x: chosen.map((i) => points[i][0]), y: chosen.map((i) => points[i][1]), hoverinfo: "none",
          customdata: chosen, marker: { size: 13, symbol: "circle-open", color: Headscan.colour("accent"), line: { width: 2 } } },
        { type: "scatter", mode: "text", x: labels.at.map((row) => row[0]), y: labels.at.map((row) => row[1]), text: labels.text,
          textposition: "top center", textfont: { size: 11, color: ink }, hoverinfo: "skip" },
      ];
      const look = (direction) => ({
        range: ranges[direction], title: { text: `direction ${direction + 1}` }, color: Headscan.colour("muted"),
        gridcolor: Headscan.colour("hairline"), zeroline: false, fixedrange: true,
      });
      const layout = {
        ...this.base(), margin: { l: 48, r: 8, t: 8, b: 40 }, hovermode: "closest", dragmode: false,
        xaxis: { ...look(0), constrain: "domain" }, yaxis: { ...look(1), scaleanchor: "x", constrain: "domain" },
      };
      return { data, layout };
    }

    base() {
      return {
        width: this.scene.clientWidth, height: this.scene.clientHeight, margin: { l: 0, r: 0, t: 0, b: 0 }, showlegend: false,
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: false,
        font: { family: "Helvetica Neue, Helvetica, Arial, Liberation Sans, sans-serif", size: 12, color: Headscan.colour("muted") },
      };
    }
  }

  const wanted = () => find.value.trim();
  const plainToken = (token) => token.replace(/^[\s\u2423\u2581\u0120]+|[\s\u2423]+$/g, "");

  function nice(step) {
    const power = 10 ** Math.floor(Math.log10(step));
    return [1, 2, 5, 10].find((factor) => factor * power >= step) * power;
  }

  // ---- the tooltip

  function showTip(parts, [x, y]) {
    tip.replaceChildren(...parts);
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(6, Math.min(x + 14, innerWidth - width - 6))}px`;
    tip.style.top = `${y + 18 + height > innerHeight ? y - height - 12 : y + 18}px`;
  }

  function hideTip() {
    tip.hidden = true;
  }

  // ---- slider, play button, search

  let turning = false;
  const panels = [...scanner.querySelectorAll(".panel")].map((root) => new Panel(root, clouds[Number(root.dataset.cloud)]));

  function show() {
    if (!window.Plotly) return Promise.resolve();
    const step = Number(slider.value);
    const names = [...new Set(clouds.map((cloud) => cloud.sites[slideIndex(cloud, step)].site))];
    layerName.textContent = names.join(" / ");
    slider.setAttribute("aria-valuetext", names.join(", "));
    for (const panel of panels) panel.step = step;
    if (moved) Headscan.select({ site: clouds[0].sites[slideIndex(clouds[0], step)].site });
    moved = true;
    return Promise.all(panels.map((panel) => panel.draw(step)));
  }

  // The first picture is nobody's choice; from then on the address says where the slider stands.
  let moved = false;
  let timer = 0;
  function playing(on) {
    clearTimeout(timer);
    // The next picture waits for this one, however slow the machine.
    const next = async () => {
      slider.value = (Number(slider.value) + 1) % steps;
      await show();
      if (timer) timer = setTimeout(next, 800);
    };
    timer = on ? setTimeout(next, 300) : 0;
    play.setAttribute("aria-pressed", String(on));
    play.querySelector("[aria-hidden]").textContent = on ? "❚❚" : "▶";
    play.querySelector(".word").textContent = on ? "Pause" : "Play";
  }

  play.addEventListener("click", () => playing(timer === 0));
  slider.addEventListener("input", () => {
    playing(false);
    show();
  });
  find.addEventListener("input", () => {
    Headscan.select({ token: wanted() });
    show();
  });
  choose.addEventListener("change", () => {
    Headscan.select({ colour: choose.value === standard ? "" : choose.value });
    redraw();
  });
  named.addEventListener("change", show);
  far.addEventListener("change", redraw);
  scanner.addEventListener("keydown", (event) => event.key === "Escape" && hideTip());

  function redraw() {
    if (legend) legend.hidden = !byLegend();
    scanner.querySelector(".scale").hidden = byLegend();
    if (byLegend()) {
      for (const key of keys) key.querySelector(".swatch").style.background = ofLegend(Number(key.dataset.code));
    } else {
      const { ends, shown: written, words } = SCALES[choose.value];
      const bounds = ends.map((end) => written(end).toLocaleString("en"));
      scanner.querySelector(".scale .unit").textContent = words;
      scanner.querySelector(".scale .low").textContent = bounds[0];
      scanner.querySelector(".scale .high").textContent = bounds[1];
    }
    for (const panel of panels) {
      panel.drawFilm();
      const slide = panel.cloud.sites[slideIndex(panel.cloud, Number(slider.value))];
      if (Headscan.state.printing) panel.flat(panel.still, slide, 6, 0.04);
    }
    if (!Headscan.state.printing) show();
  }

  document.getElementById("fallback").hidden = webgl;
  far.parentElement.hidden = !clouds.some((cloud) => cloud.sites.some((slide) => frame(cloud, slide).outside));
  slider.max = steps - 1;
  // Opens on the last block, where the deck's cone is.
  const first = clouds[0].sites.map((slide) => /(^|\.)block\.\d+$/.test(slide.site)).lastIndexOf(true);
  slider.value = first < 0 ? steps - 1 : Math.round((first * (steps - 1)) / Math.max(clouds[0].sites.length - 1, 1));

  // What is selected elsewhere (a row, a line, the address) moves the slider and fills the search.
  function follow() {
    const { site, token, colour } = Headscan.selected;
    const at = clouds.map((cloud) => cloud.sites.findIndex((slide) => slide.site === site));
    const which = at.findIndex((index) => index >= 0);
    if (which >= 0 && clouds.every((cloud) => cloud.sites[slideIndex(cloud, Number(slider.value))].site !== site)) {
      slider.value = Math.round((at[which] * (steps - 1)) / Math.max(clouds[which].sites.length - 1, 1));
    }
    if (wanted() !== token) find.value = token;
    if (colour in SCALES || !colour) choose.value = colour || standard;
  }
  Headscan.onSelect((changed) => {
    const before = [slider.value, find.value, choose.value].join();
    follow();
    if (before !== [slider.value, find.value, choose.value].join()) {
      moved = false; // the address says it already
      (changed.includes("colour") ? redraw : show)();
    }
  });
  follow();
  Headscan.onDraw(redraw, scanner);
})();
