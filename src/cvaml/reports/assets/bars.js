"use strict";
// One panel of horizontal bars with their intervals.

function barText(s, narrow) {
  const interval = !narrow && s.low && s.low[0] !== null ? ` [${show(s.low[0])}, ${show(s.high[0])}]` : "";
  return show(s.y[0]) + interval;
}

function drawBars(owner, panel, box, width) {
  const series = owner.visible(panel.series), row = 26, top = panel.title ? 28 : 8, bottom = 24;
  const longest = (texts) => texts.reduce((most, text) => Math.max(most, text.length), 6);
  const left = Math.min(width * 0.36, longest(series.map((s) => s.name)) * 6.9 + 12);
  const text = (s) => barText(s, width < 420), right = longest(series.map(text)) * 6.3 + 14;
  const height = top + series.length * row + bottom;
  const values = series.flatMap((s) => [s.y[0], s.low ? s.low[0] : null, s.high ? s.high[0] : null]).filter((v) => v !== null);
  const sx = makeScale(Math.min(0, ...values), Math.max(1e-12, ...values), left, Math.max(width - right, left + 50), false);
  const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const axes = svg("g", { class: "axes" });
  if (panel.title) axes.append(svg("text", { class: "title", x: 0, y: 15 }, panel.title));
  for (const t of sx.ticks(Math.max(1, Math.min(4, Math.floor((width - left - right) / 60))))) {
    axes.append(svg("line", { class: "grid", x1: sx(t), x2: sx(t), y1: top, y2: height - bottom }));
    axes.append(svg("text", { x: sx(t), y: height - 7, "text-anchor": "middle" }, tickText(t)));
  }
  root.append(axes);
  const fits = Math.floor((left - 10) / 6.9);
  series.forEach((s, i) => {
    const y = top + i * row + row / 2, { stroke, dash } = owner.style(s.name, s.role), value = s.y[0];
    const short = s.name.length > fits ? s.name.slice(0, Math.max(1, fits - 1)) + "…" : s.name;
    const label = svg("text", { class: "bar-name", x: left - 8, y: y + 4, "text-anchor": "end" }, short);
    label.append(svg("title", {}, s.name));
    root.append(label);
    if (value === null) return;
    const bar = svg("rect", { class: "mark bar", x: Math.min(sx(0), sx(value)), y: y - 7, width: Math.max(1, Math.abs(sx(value) - sx(0))), height: 14, rx: 3, fill: stroke, "fill-opacity": dash ? 0.5 : 1 });
    bar.seriesName = s.name;
    bar.append(svg("title", {}, `${s.name}: ${barText(s)} ${s.note || ""}`));
    root.append(bar);
    let end = sx(value);
    if (s.low && s.low[0] !== null) {
      root.append(svg("line", { class: "interval", x1: sx(s.low[0]), x2: sx(s.high[0]), y1: y, y2: y }));
      end = Math.max(end, sx(s.high[0]));
    }
    root.append(svg("text", { class: "bar-value", x: end + 6, y: y + 4 }, text(s)));
  });
  box.append(root);
}
