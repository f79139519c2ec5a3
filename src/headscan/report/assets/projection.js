// A cloud drawn flat on a canvas from one fixed view: the film strip below the scan, and what stands in for WebGL in print.
"use strict";
const Projection = (() => {
  const EYE = [0.45, -1.55, 0.55];

  const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
  const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
  const unit = (a) => a.map((x) => x / Math.hypot(...a));

  function basis(eye) {
    const forward = unit(eye.map((x) => -x));
    const right = unit(cross(forward, [0, 0, 1]));
    return { forward, right, up: cross(right, forward) };
  }

  // points: [k][3] inside ranges ([3][2], all of one length); colours: [k]; diamonds: [k], which points are diamonds, not circles.
  // The origin is a ring, with a ray to each point.
  function draw(canvas, { points, colours, ranges, ink, size = 2, rays = 0.1, eye = EYE, diamonds = [] }) {
    const context = canvas.getContext("2d");
    const { width, height } = canvas;
    const { forward, right, up } = basis(eye);
    const middle = ranges.map(([low, high]) => (low + high) / 2);
    const half = ranges.map(([low, high]) => (high - low) / 2);
    const spread = (direction) => dot(half, direction.map(Math.abs)) * 2;
    const zoom = 0.96 * Math.min(width / spread(right), height / spread(up));
    const project = (point) => {
      const shifted = point.map((x, axis) => x - middle[axis]);
      return [width / 2 + dot(shifted, right) * zoom, height / 2 - dot(shifted, up) * zoom, dot(shifted, forward)];
    };
    context.clearRect(0, 0, width, height);
    const origin = project([0, 0, 0]);
    const flat = points.map((point, index) => ({ at: project(point), colour: colours[index], diamond: diamonds[index] })).filter((p) => Number.isFinite(p.at[0]));
    flat.sort((a, b) => b.at[2] - a.at[2]);
    context.strokeStyle = ink;
    context.globalAlpha = rays;
    context.lineWidth = Math.max(size * 0.3, 0.5);
    for (const { at } of flat) {
      context.beginPath();
      context.moveTo(origin[0], origin[1]);
      context.lineTo(at[0], at[1]);
      context.stroke();
    }
    context.globalAlpha = 0.9;
    for (const { at, colour, diamond } of flat) {
      const [x, y] = at;
      const reach = 1.3 * size;
      context.fillStyle = colour;
      context.beginPath();
      if (diamond) [[x, y - reach], [x + reach, y], [x, y + reach], [x - reach, y]].forEach((corner) => context.lineTo(...corner));
      else context.arc(x, y, size, 0, 2 * Math.PI);
      context.fill();
    }
    context.globalAlpha = 1;
    context.lineWidth = Math.max(size * 0.7, 1.2);
    context.beginPath();
    context.arc(origin[0], origin[1], size * 1.7, 0, 2 * Math.PI);
    context.stroke();
  }

  return { draw, EYE };
})();
