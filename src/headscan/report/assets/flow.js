// One canvas a part: rows are input tokens, columns outputs. The slider turns the layers of all parts together.
"use strict";
(() => {
  const { kinds, parts } = Headscan.data;
  const slider = document.getElementById("layer");
  const name = document.getElementById("layer-name");
  const readout = document.getElementById("readout");
  const choose = document.getElementById("kind");
  const most = Math.max(...parts.map((part) => part.sites.length));
  let kind = kinds[0];
  let cell = null;
  slider.max = String(most - 1);
  slider.value = String(most - 1);

  const views = parts.map((part) => {
    const figure = document.createElement("figure");
    const canvas = document.createElement("canvas");
    const caption = document.createElement("figcaption");
    canvas.width = canvas.height = 520;
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
    const size = view.canvas.width / matrix.length;
    const flat = matrix.flat().filter((v) => v !== null);
    const top = kind === "recoverable" ? 1 : flat.reduce((a, b) => Math.max(a, b), 0) || 1;
    const [paper, ink] = [hex(Headscan.colour("paper")), hex(Headscan.colour("accent"))];
    matrix.forEach((row, i) => row.forEach((value, j) => {
      const share = Math.sqrt((value || 0) / top);
      pen.fillStyle = `rgb(${paper.map((p, k) => Math.round(p + (ink[k] - p) * share)).join(",")})`;
      pen.fillRect(j * size, i * size, Math.ceil(size), Math.ceil(size));
    }));
    // The cell that is told is framed, in every matrix that has it.
    if (cell && cell[0] < matrix.length && cell[1] < matrix.length) {
      pen.lineWidth = 3;
      pen.strokeStyle = Headscan.colour("ink");
      pen.strokeRect(cell[1] * size + 1.5, cell[0] * size + 1.5, size - 3, size - 3);
    }
    const label = `${view.part.name}, ${view.part.sites[layer(view.part)]}, ${kind}, 0 to ${top.toPrecision(3)}`;
    view.caption.textContent = label;
    view.canvas.setAttribute("aria-label", label);
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
      const n = view.part.tokens.length;
      tell(view, Math.floor(((event.clientY - box.top) / box.height) * n), Math.floor(((event.clientX - box.left) / box.width) * n));
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
