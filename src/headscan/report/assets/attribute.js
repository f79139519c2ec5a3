// The coloured text: choosing a method and a prediction recolours it; pointing at a token or walking to it shows its number.
"use strict";
(() => {
  const data = Headscan.data;
  const box = document.getElementById("tokens");
  const spans = [...box.querySelectorAll(".t")];
  const readout = document.getElementById("readout");
  const tip = document.createElement("div");
  const initial = readout.innerHTML;
  const unitOf = new Array(spans.length);
  data.units.forEach((tokens) => tokens.forEach((i) => (unitOf[i] = tokens)));
  let method = 0;
  let step = -1;
  let here = -1;
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);

  const row = (m, s) => {
    const all = data.scores[data.methods[m]];
    return s >= 0 ? all[s] : all[0].map((_, i) => all.reduce((sum, one) => sum + one[i], 0) / all.length);
  };

  const shown = (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(value).toPrecision(3)}`;

  function colour() {
    const values = row(method, step);
    const largest = values.reduce((top, value) => Math.max(top, Math.abs(value)), 0) || 1;
    const read = step >= 0 ? data.positions[step] : -1;
    spans.forEach((span, i) => {
      const value = values[i] || 0;
      span.style.setProperty("--a", (Math.abs(value) / largest).toFixed(3));
      span.classList.toggle("for", value > 0);
      span.classList.toggle("against", value < 0);
      span.classList.toggle("read", i === read);
    });
  }

  // Text only ever goes in as textContent: a token may be any string.
  function describe(place, i) {
    place.textContent = "";
    const token = document.createElement("mark");
    token.textContent = data.tokens[i];
    const rest = document.createElement("span");
    const total = row(method, step).reduce((sum, value) => sum + Math.abs(value), 0) || 1;
    const value = row(method, step)[i];
    const share = ((100 * Math.abs(value)) / total).toFixed(1);
    const unit = unitOf[i] && unitOf[i].length > 1 ? `, unit ${unitOf[i][0]}–${unitOf[i][unitOf[i].length - 1]}` : "";
    const who = data.roles[i] ? `, ${data.roles[i]}` : "";
    rest.textContent = ` token ${i}, id ${data.ids[i]}${unit}${who}: ${shown(value)} (${share} % of all)`;
    place.append(token, rest);
    if (data.methods.length > 1) {
      const others = document.createElement("span");
      others.className = "soft";
      others.textContent = data.methods.map((name, m) => `${name} ${shown(row(m, step)[i])}`).join(" · ");
      place.append(others);
    }
  }

  function go(i) {
    if (spans[here]) spans[here].classList.remove("here");
    here = i;
    if (!spans[i]) {
      readout.innerHTML = initial;
      return;
    }
    spans[i].classList.add("here");
    spans[i].scrollIntoView({ block: "nearest" });
    describe(readout, i);
  }

  box.addEventListener("mousemove", (event) => {
    const span = event.target.closest(".t");
    tip.hidden = !span;
    if (!span) return;
    describe(tip, Number(span.dataset.i));
    const width = tip.offsetWidth;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    tip.style.top = event.clientY + 24 + tip.offsetHeight > innerHeight ? `${event.clientY - tip.offsetHeight - 12}px` : `${event.clientY + 20}px`;
  });
  box.addEventListener("mouseleave", () => (tip.hidden = true));
  box.addEventListener("click", (event) => {
    const span = event.target.closest(".t");
    if (span) go(Number(span.dataset.i));
  });
  box.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: spans.length - 1 };
    if (event.key === "Escape") return go(-1);
    if (!(event.key in moves)) return;
    event.preventDefault();
    go(Math.max(0, Math.min(spans.length - 1, moves[event.key])));
  });
  const choose = document.getElementById("method");
  if (choose) choose.addEventListener("change", () => { method = Number(choose.value); colour(); if (here >= 0) describe(readout, here); });
  document.getElementById("indices").addEventListener("change", (event) => box.classList.toggle("indexed", event.target.checked));
  const buttons = [...document.querySelectorAll("button.step")];
  buttons.forEach((button) => button.addEventListener("click", () => {
    step = Number(button.dataset.step);
    buttons.forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
    colour();
    if (here >= 0) describe(readout, here);
  }));
})();
