// One canvas a part: rows are input tokens, columns outputs, both labelled by their tokens. The slider turns the layers of
// all parts together.
"use strict";
(() => {
  const { kinds, parts } = Headscan.data;
  const slider = document.getElementById("layer");
  const name = document.getElementById("layer-name");
  const readout = document.getElementById("readout");
  const choose = document.getElementById("kind");
  const most = Math.max(...parts.map((part) => part.sites.length));
  const SIDE = 620;
  const EDGE = 100; // room for the labels, left and on top
  let kind = kinds[0];
  let cell = null;
  slider.max = String(most - 1);
  slider.value = String(most - 1);

  const views = parts.map((part) => {
    const figure = document.createElement("figure");
    const canvas = document.createElement("canvas");
    const caption = document.createElement("figcaption");
    canvas.width = canvas.height = SIDE;
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    figure.append(canvas, caption);
    document.getElementById("matrices").append(figure);
    return { part, canvas, caption, at: [0, 0] };
  });

  const layer = (part) => Math.min(Number(slider.value), part.sites.length - 1);
  const hex = (colour) => [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));

  function draw(view) {
    const matrix = view.part[kind][layer(view.part)];
    const pen = view.canvas.getContext("2d");
    const size = (SIDE - EDGE) / matrix.length;
    pen.clearRect(0, 0, SIDE, SIDE);
    const flat = matrix.flat().filter((v) => v !== null);
    const top = kind === "recoverable" ? 1 : flat.reduce((a, b) => Math.max(a, b), 0) || 1;
    const [paper, ink] = [hex(Headscan.colour("paper")), hex(Headscan.colour("accent"))];
    matrix.forEach((row, i) => row.forEach((value, j) => {
      const share = Math.sqrt((value || 0) / top);
      pen.fillStyle = `rgb(${paper.map((p, k) => Math.round(p + (ink[k] - p) * share)).join(",")})`;
      pen.fillRect(EDGE + j * size, EDGE + i * size, Math.ceil(size), Math.ceil(size));
    }));
    label(pen, view.part.tokens, size);
    // The cell that is told is framed, in every matrix that has it.
    if (cell && cell[0] < matrix.length && cell[1] < matrix.length) {
      pen.lineWidth = 3;
      pen.strokeStyle = Headscan.colour("ink");
      pen.strokeRect(EDGE + cell[1] * size + 1.5, EDGE + cell[0] * size + 1.5, size - 3, size - 3);
    }
    const words = `${view.part.name}, ${view.part.sites[layer(view.part)]}, ${kind}, 0 to ${top.toPrecision(3)}`;
    view.caption.textContent = words;
    view.canvas.setAttribute("aria-label", words);
  }

  // Tokens beside their rows and above their columns; every second, third ... where there is no room for all.
  function label(pen, tokens, size) {
    const every = Math.ceil(15 / size);
    pen.fillStyle = Headscan.colour("ink");
    pen.font = `${Math.min(15, Math.max(11, size * 0.7))}px sans-serif`;
    pen.textBaseline = "middle";
    tokens.forEach((token, k) => {
      if (k % every) return;
      const letters = [...token];
      const text = letters.length > 12 ? `${letters.slice(0, 11).join("")}…` : token;
      pen.textAlign = "right";
      pen.fillText(text, EDGE - 6, EDGE + (k + 0.5) * size, EDGE - 10);
      pen.save();
      pen.translate(EDGE + (k + 0.5) * size, EDGE - 6);
      pen.rotate(-Math.PI / 2);
      pen.textAlign = "left";
      pen.fillText(text, 0, 0, EDGE - 10);
      pen.restore();
    });
  }

  function drawAll() {
    name.textContent = parts[0].sites[layer(parts[0])];
    slider.setAttribute("aria-valuetext", name.textContent);
    views.forEach(draw);
  }

  function tell(view, i, j) {
    const n = view.part.tokens.length;
    view.at = [Math.max(0, Math.min(n - 1, i)), Math.max(0, Math.min(n - 1, j))];
    const [a, b] = (cell = view.at);
    views.forEach(draw);
    const s = layer(view.part);
    const values = kinds.map((k) => `${k} ${Number(view.part[k][s][a][b]).toPrecision(3)}`).join(", ");
    readout.textContent = `Token ${a} ${view.part.tokens[a]} in output ${b} ${view.part.tokens[b]}: ${values}`;
  }

  views.forEach((view) => {
    view.canvas.addEventListener("mousemove", (event) => {
      const box = view.canvas.getBoundingClientRect();
      const place = (share) => Math.floor(((share * SIDE - EDGE) / (SIDE - EDGE)) * view.part.tokens.length);
      tell(view, place((event.clientY - box.top) / box.height), place((event.clientX - box.left) / box.width));
    });
    view.canvas.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!step) return;
      event.preventDefault();
      tell(view, view.at[0] + step[0], view.at[1] + step[1]);
    });
  });
  slider.addEventListener("input", drawAll);
  if (choose) choose.addEventListener("change", () => { kind = choose.value; drawAll(); });
  Headscan.onDraw(drawAll);
  drawAll();
})();
