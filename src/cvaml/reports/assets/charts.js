"use strict";
// Charts on SVG. Text reaches the document through textContent only, so no name can become markup.

const SVG = "http://www.w3.org/2000/svg";
const DASHES = ["", "7 4", "2 3", "9 3 2 3"];
const PUBLISHED_DASHES = ["", "5 3", "2 2", "8 3 2 3", "10 4"];

function svg(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  return node;
}

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const key in attributes) {
    if (key === "onclick" || key === "onchange") node.addEventListener(key.slice(2), attributes[key]);
    else node.setAttribute(key, attributes[key]);
  }
  node.append(...children);
  return node;
}

function fileLinks(files) {
  return files.flatMap((file, i) => [i ? ", " : "", el("a", { href: file }, file.split(".").pop().toUpperCase())]);
}

// ---- numbers

function show(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(1).replace("e+", "e");
  if (size >= 1000) return Math.round(value).toLocaleString("en").replace(/,/g, "\u202f");
  return String(Number(value.toPrecision(3)));
}

function tickText(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return Number((value / 1e6).toPrecision(3)) + "M";
  if (size >= 1e4) return Number((value / 1e3).toPrecision(3)) + "k";
  if (size !== 0 && size < 1e-3) return value.toExponential(0).replace("e+", "e");
  return String(Number(value.toPrecision(4)));
}

function niceTicks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough) || rough;
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(i * step);
  return ticks;
}

function logTicks(low, high, count) {
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  if (last - first >= 2) {
    const every = Math.max(1, Math.ceil((last - first + 1) / count)), ticks = [];
    for (let e = first; e <= last; e += every) ticks.push(10 ** e);
    return ticks;
  }
  const ticks = [];
  for (let e = first - 1; e <= last + 1; e++) {
    for (const m of [1, 2, 5]) if (m * 10 ** e >= low * 0.999 && m * 10 ** e <= high * 1.001) ticks.push(m * 10 ** e);
  }
  return ticks;
}

// A scale maps numbers to pixels; on a log axis what is not positive has no place.
function makeScale(low, high, from, to, log) {
  const f = log ? Math.log10 : (v) => v;
  const a = f(low), b = f(high) === a ? a + 1 : f(high);
  const scale = (v) => (v === null || (log && v <= 0) ? null : from + ((f(v) - a) / (b - a)) * (to - from));
  scale.ticks = (count) => (log ? logTicks(low, high, count) : niceTicks(low, high, count));
  return scale;
}

function extent(series, axis, log) {
  let low = Infinity, high = -Infinity;
  const take = (v) => {
    if (v === null || (log && v <= 0)) return;
    if (v < low) low = v;
    if (v > high) high = v;
  };
  for (const s of series) {
    for (const v of s[axis]) take(v);
    if (axis === "y" && s.low && s.role !== "published") { s.low.forEach(take); s.high.forEach(take); }
  }
  if (low > high) return log ? [0.1, 1] : [0, 1];
  if (axis === "x") return low === high ? (log ? [low / 2, low * 2] : [low - 1, low + 1]) : [low, high];
  if (log) return [low / 1.3, high * 1.3];
  if (low >= 0 && low < high * 0.6) return [0, high * 1.05 || 1];
  const pad = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low - pad, high + pad];
}

// ---- paths

function linePath(s, sx, sy) {
  let path = "", pen = false;
  for (let i = 0; i < s.x.length; i++) {
    const x = sx(s.x[i]), y = s.y[i] === null ? null : sy(s.y[i]);
    if (x === null || y === null) { pen = false; continue; }
    path += (pen ? "L" : "M") + x.toFixed(1) + " " + y.toFixed(1);
    pen = true;
  }
  return path;
}

function bandPath(s, sx, sy, floor) {
  const up = [], down = [];
  for (let i = 0; i < s.x.length; i++) {
    const x = sx(s.x[i]), high = sy(s.high[i]), low = s.low[i] === null ? null : sy(s.low[i]);
    if (x === null || high === null) continue;
    up.push(x.toFixed(1) + " " + high.toFixed(1));
    down.push(x.toFixed(1) + " " + (low === null ? floor : Math.min(low, floor)).toFixed(1));
  }
  return up.length > 1 ? "M" + up.join("L") + "L" + down.reverse().join("L") + "Z" : "";
}

// ---- one chart

class ChartView {
  constructor(chart, looks) {
    this.chart = chart;
    this.looks = looks; // name -> [colour slot, dash]
    this.index = 0;
    this.hidden = new Set();
    this.runs = false;
    this.published = true;
    this.drawn = false;
    this.adoptAxes();
    this.node = this.build();
  }

  get view() { return this.chart.views[this.index]; }

  adoptAxes() { this.xLog = this.view.xLog; this.yLog = this.view.yLog; }

  allSeries() { return this.view.panels.flatMap((p) => p.series); }

  visible(series) {
    return series.filter((s) => !this.hidden.has(s.name) && (s.role !== "run" || this.runs)
      && (s.role !== "published" || this.published));
  }

  build() {
    const c = this.chart;
    this.legend = el("div", { class: "legend", role: "group", "aria-label": "Show or hide" });
    this.panels = el("div", { class: "panels" });
    this.tools = el("div", { class: "tools" });
    const node = el("figure", { class: "card chart", id: c.key },
      el("figcaption", {}, el("h3", {}, c.title), el("p", { class: "caption" }, c.caption)),
      this.tools, this.legend, this.panels);
    if (c.files) node.append(el("p", { class: "files" }, "Figure as ", ...fileLinks(c.files)));
    this.buildTools();
    this.buildLegend();
    return node;
  }

  toggle(label, pressed, change) {
    const button = el("button", { type: "button", class: "switch", "aria-pressed": String(pressed) }, label);
    button.addEventListener("click", () => {
      const now = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(now));
      change(now);
      this.draw();
    });
    return button;
  }

  buildTools() {
    this.tools.replaceChildren();
    if (this.chart.views.length > 1) {
      const choice = el("select", { "aria-label": "What to show" },
        ...this.chart.views.map((v, i) => el("option", { value: i }, v.label)));
      choice.value = this.index;
      choice.addEventListener("change", () => {
        this.index = Number(choice.value);
        this.adoptAxes();
        this.buildTools();
        this.buildLegend();
        this.draw();
        this.tools.querySelector("select").focus();
      });
      this.tools.append(choice);
    }
    if (this.chart.kind !== "lines") return;
    this.tools.append(this.toggle("log x", this.xLog, (on) => { this.xLog = on; }));
    this.tools.append(this.toggle("log y", this.yLog, (on) => { this.yLog = on; }));
    const series = this.allSeries();
    if (series.some((s) => s.role === "run")) {
      this.tools.append(this.toggle("single runs", this.runs, (on) => { this.runs = on; }));
    }
    if (series.some((s) => s.role === "published")) {
      this.tools.append(this.toggle("published methods", this.published, (on) => { this.published = on; }));
    }
  }

  buildLegend() {
    this.legend.replaceChildren();
    const names = new Map();
    const ours = this.allSeries().filter((s) => s.role !== "published"), all = [...ours, ...this.allSeries()];
    for (const s of all) if (!names.has(s.name)) names.set(s.name, s.role === "run" ? undefined : s.role);
    if (names.size < 2) return;
    for (const [name, role] of names) {
      const button = el("button", { type: "button", class: "key", "aria-pressed": String(!this.hidden.has(name)), title: "Shift-click: only this one" },
        this.swatch(name, role), el("span", {}, name));
      button.addEventListener("click", (event) => {
        if (event.shiftKey) this.isolate(name, [...names.keys()]);
        else if (this.hidden.has(name)) this.hidden.delete(name);
        else this.hidden.add(name);
        for (const key of this.legend.children) {
          key.setAttribute("aria-pressed", String(!this.hidden.has(key.lastChild.textContent)));
        }
        this.draw();
      });
      button.addEventListener("pointerenter", () => this.emphasise(name));
      button.addEventListener("pointerleave", () => this.emphasise(null));
      this.legend.append(button);
    }
  }

  isolate(name, names) {
    const alone = this.hidden.size === names.length - 1 && !this.hidden.has(name);
    this.hidden = new Set(alone ? [] : names.filter((other) => other !== name));
  }

  emphasise(name) {
    this.panels.classList.toggle("faded", name !== null);
    for (const path of this.panels.querySelectorAll(".mark")) path.classList.toggle("on", path.seriesName === name);
  }

  style(name, role) {
    const [slot, dash] = this.looks[name] || [0, 0];
    if (role === "published") return { stroke: "var(--published)", dash: PUBLISHED_DASHES[dash % PUBLISHED_DASHES.length] };
    return { stroke: `var(--s${slot})`, dash: DASHES[dash % DASHES.length] };
  }

  swatch(name, role) {
    const { stroke, dash } = this.style(name, role);
    const mark = svg("svg", { class: "swatch", viewBox: "0 0 24 10", width: 24, height: 10, "aria-hidden": "true" });
    mark.append(svg("line", { x1: 1, x2: 23, y1: 5, y2: 5, stroke, "stroke-width": role === "published" ? 1.5 : 2.5, "stroke-dasharray": dash, "stroke-linecap": "round" }));
    return mark;
  }

  draw() {
    const focused = [...this.panels.children].indexOf(document.activeElement);
    this.drawn = true;
    this.panels.replaceChildren();
    const { view } = this, lines = this.chart.kind === "lines";
    this.panels.style.gridTemplateColumns = `repeat(${this.columns(view.panels.length)}, minmax(0, 1fr))`;
    const boxes = view.panels.map((panel) => {
      const box = el("div", { class: "panel", tabindex: 0, role: "group", "aria-label": this.describe(panel) });
      this.panels.append(box);
      return box;
    });
    const shown = this.visible(this.allSeries());
    const y = extent(shown, "y", this.yLog), x = extent(shown, "x", this.xLog);
    const widths = boxes.map((box) => box.clientWidth); // read all before writing any
    view.panels.forEach((panel, i) => {
      const own = view.sharedY ? y : extent(this.visible(panel.series), "y", this.yLog);
      if (lines) new LinePanel(this, panel, boxes[i], widths[i], x, own);
      else drawBars(this, panel, boxes[i], widths[i]);
    });
    if (focused >= 0 && boxes[focused]) boxes[focused].focus();
  }

  // As many columns as fit, then the fewest that keep the same number of rows.
  columns(count) {
    const least = this.chart.kind === "bars" ? 420 : 240;
    const fit = Math.max(1, Math.min(count, Math.floor((this.panels.clientWidth + 16) / (least + 16))));
    return Math.ceil(count / Math.ceil(count / fit));
  }

  describe(panel) {
    const names = this.visible(panel.series).filter((s) => s.role !== "run").map((s) => s.name);
    const title = panel.title ? panel.title + ". " : "";
    const keys = this.chart.kind === "lines" ? " Arrow keys read the values." : "";
    return `${title}${names.slice(0, 12).join(", ")}.${keys}`;
  }
}

// ---- lines

class LinePanel {
  constructor(owner, panel, box, width, xRange, yRange) {
    Object.assign(this, { owner, panel, box });
    const single = owner.view.panels.length === 1;
    const height = single ? Math.max(260, Math.min(400, width * 0.5)) : Math.max(220, Math.min(260, width * 0.72));
    const named = owner.visible(panel.series).filter((s) => s.role !== "run");
    const longest = Math.max(0, ...named.map((s) => s.name.length));
    this.named = single && width > 700 && named.length > 1 && named.length <= 24 ? named : [];
    const right = this.named.length ? Math.min(190, longest * 6.6 + 20) : 14;
    const pad = { top: panel.title ? 26 : 10, right, bottom: 40, left: 52 };
    this.size = { width, height, pad };
    this.sy = makeScale(yRange[0], yRange[1], height - pad.bottom, pad.top, owner.yLog);
    pad.left = 30 + 7 * Math.max(2, ...this.sy.ticks(5).map((t) => tickText(t).length));
    this.sx = makeScale(xRange[0], xRange[1], pad.left, width - pad.right, owner.xLog);
    this.root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    this.axes();
    this.marks();
    this.endLabels();
    this.cursor = svg("g", { class: "cursor" });
    this.root.append(this.cursor);
    // On a narrow screen the values stand under the plot: beside the finger there is no room.
    this.tip = el("div", { class: innerWidth < 640 ? "tip under" : "tip", role: "status" });
    this.tip.hidden = true;
    box.append(this.root, this.tip);
    this.listen();
  }

  axes() {
    const { width, height, pad } = this.size, { view } = this.owner, group = svg("g", { class: "axes" });
    const bottom = height - pad.bottom;
    for (const t of this.sy.ticks(5)) {
      const y = this.sy(t);
      group.append(svg("line", { class: "grid", x1: pad.left, x2: width - pad.right, y1: y, y2: y }));
      group.append(svg("text", { x: pad.left - 7, y: y + 4, "text-anchor": "end" }, tickText(t)));
    }
    for (const t of this.xTicks()) {
      const x = this.sx(t);
      group.append(svg("line", { class: "tick", x1: x, x2: x, y1: bottom, y2: bottom + 4 }));
      group.append(svg("text", { x, y: bottom + 17, "text-anchor": "middle" }, tickText(t)));
    }
    group.append(svg("line", { class: "axis", x1: pad.left, x2: width - pad.right, y1: bottom, y2: bottom }));
    group.append(svg("text", { class: "label", x: (pad.left + width - pad.right) / 2, y: height - 5, "text-anchor": "middle" }, view.xLabel));
    const middle = (pad.top + bottom) / 2;
    group.append(svg("text", { class: "label", x: 12, y: middle, transform: `rotate(-90 12 ${middle})`, "text-anchor": "middle" }, view.yLabel));
    if (this.panel.title) group.append(svg("text", { class: "title", x: pad.left, y: 15 }, this.panel.title));
    this.root.append(group);
  }

  // Where a curve has few points these are the ticks, as long as their numbers do not touch.
  xTicks() {
    const { width, pad } = this.size;
    const own = this.positions(this.owner.visible(this.panel.series)), places = own.map((x) => this.sx(x));
    const apart = places.every((x, i) => !i || x - places[i - 1] > 8 * tickText(own[i]).length + 8);
    return own.length > 1 && own.length <= 9 && apart ? own : this.sx.ticks(Math.max(2, Math.floor((width - pad.left - pad.right) / 80)));
  }

  marks() {
    const { owner } = this, floor = this.size.height - this.size.pad.bottom;
    const order = { published: 0, run: 1, main: 2 };
    this.series = owner.visible(this.panel.series);
    const back = [...this.series].sort((a, b) => order[a.role || "main"] - order[b.role || "main"]);
    const bands = svg("g", { class: "bands" }), lines = svg("g", { class: "lines" });
    for (const s of back) {
      const { stroke, dash } = owner.style(s.name, s.role);
      if (s.low && !s.role) {
        const band = bandPath(s, this.sx, this.sy, floor);
        if (band) bands.append(svg("path", { class: "band", d: band, fill: stroke }));
        else this.whisker(s, bands, stroke);
      }
      const path = svg("path", { class: "mark " + (s.role || "main"), d: linePath(s, this.sx, this.sy), stroke, "stroke-dasharray": s.role === "run" ? "" : dash });
      path.seriesName = s.name;
      lines.append(path);
      if (!s.role && s.x.length <= 12) this.dots(s, lines, stroke);
    }
    this.root.append(bands, lines);
  }

  // Names at the right edge, at the height of each curve's last point, pushed apart where they meet.
  endLabels() {
    const { width, height, pad } = this.size, gap = 14, bottom = height - pad.bottom;
    const labels = this.named.map((s) => {
      let last = s.y.length - 1;
      while (last >= 0 && s.y[last] === null) last--;
      return { s, y: last < 0 ? null : this.sy(s.y[last]) };
    }).filter((label) => label.y !== null).sort((a, b) => a.y - b.y);
    labels.forEach((label, i) => { label.at = i ? Math.max(label.y, labels[i - 1].at + gap) : Math.max(label.y, pad.top); });
    for (let i = labels.length - 1, limit = bottom; i >= 0; i--, limit = labels[i + 1].at - gap) labels[i].at = Math.min(labels[i].at, limit);
    for (const { s, at } of labels) {
      const { stroke } = this.owner.style(s.name, s.role), x = width - pad.right + 6;
      const text = svg("text", { class: "mark end " + (s.role || "main"), x: x + 8, y: at + 4 }, s.name);
      const dot = svg("circle", { class: "mark dot", cx: x, cy: at, r: 3, fill: stroke });
      text.seriesName = dot.seriesName = s.name;
      this.root.append(dot, text);
    }
  }

  whisker(s, group, stroke) {
    const x = this.sx(s.x[0]), low = this.sy(s.low[0]), high = this.sy(s.high[0]);
    if (x !== null && low !== null && high !== null) group.append(svg("line", { class: "whisker", x1: x, x2: x, y1: low, y2: high, stroke }));
  }

  dots(s, group, fill) {
    s.x.forEach((x, i) => {
      const cx = this.sx(x), cy = s.y[i] === null ? null : this.sy(s.y[i]);
      if (cx === null || cy === null) return;
      const dot = svg("circle", { class: "mark dot", cx, cy, r: 3, fill });
      dot.seriesName = s.name;
      group.append(dot);
    });
  }

  positions(series = this.series) {
    const found = new Set();
    for (const s of series) if (s.role !== "run") for (const x of s.x) if (this.sx(x) !== null) found.add(x);
    return [...found].sort((a, b) => a - b);
  }

  listen() {
    let waiting = 0;
    const leave = () => { cancelAnimationFrame(waiting); this.clear(); };
    this.box.addEventListener("pointermove", (event) => {
      cancelAnimationFrame(waiting);
      const area = this.root.getBoundingClientRect(), x = event.clientX - area.left, y = event.clientY - area.top;
      waiting = requestAnimationFrame(() => {
        let best = null;
        for (const value of this.positions()) if (best === null || Math.abs(this.sx(value) - x) < Math.abs(this.sx(best) - x)) best = value;
        if (best !== null) this.read(best, y);
      });
    });
    this.box.addEventListener("pointerleave", leave);
    this.box.addEventListener("blur", leave);
    this.box.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
      if (event.key === "Escape") { this.clear(); this.at = undefined; return; }
      if (!(event.key in steps)) return;
      event.preventDefault();
      const all = this.positions(), now = all.indexOf(this.at);
      if (!all.length) return;
      const next = now < 0 ? (event.key === "End" || event.key === "ArrowLeft" ? all.length - 1 : 0) : now + steps[event.key];
      this.read(all[Math.max(0, Math.min(all.length - 1, next))], null);
    });
  }

  clear() { this.cursor.replaceChildren(); this.tip.hidden = true; }

  // Every curve's point next to x: a curve without one within two per cent of the axis is left out.
  read(x, pointerY) {
    this.at = x;
    const { pad, width, height } = this.size, px = this.sx(x), near = Math.max(3, (width - pad.left - pad.right) * 0.02);
    const rows = [];
    for (const s of this.series) {
      if (s.role === "run") continue;
      let best = -1, distance = near;
      for (let i = 0; i < s.x.length; i++) {
        const at = this.sx(s.x[i]);
        if (at !== null && s.y[i] !== null && Math.abs(at - px) <= distance) { best = i; distance = Math.abs(at - px); }
      }
      if (best >= 0) rows.push({ s, i: best, y: this.sy(s.y[best]) });
    }
    rows.sort((a, b) => b.s.y[b.i] - a.s.y[a.i]);
    const place = (r) => (r.y === null ? Infinity : Math.abs(r.y - pointerY));
    const nearest = pointerY === null ? null : rows.reduce((a, b) => (a && place(a) <= place(b) ? a : b), null);
    this.cursor.replaceChildren(svg("line", { x1: px, x2: px, y1: pad.top, y2: height - pad.bottom }));
    for (const r of rows) {
      if (r.y === null) continue;
      const { stroke } = this.owner.style(r.s.name, r.s.role);
      this.cursor.append(svg("circle", { cx: this.sx(r.s.x[r.i]), cy: r.y, r: r === nearest ? 5 : 3.5, fill: stroke }));
    }
    this.fill(x, rows, nearest);
    const left = this.root.getBoundingClientRect().left + px > innerWidth / 2;
    this.tip.style.left = left ? "auto" : px + 12 + "px";
    this.tip.style.right = left ? width - px + 12 + "px" : "auto";
    this.tip.style.top = pad.top + "px";
    this.tip.hidden = rows.length === 0;
  }

  fill(x, rows, nearest) {
    const most = 12;
    let shown = rows.slice(0, most);
    if (nearest && !shown.includes(nearest)) shown = [...shown.slice(0, most - 1), nearest];
    this.tip.replaceChildren(el("div", { class: "at" }, `${this.owner.view.xLabel || "x"} ${show(x)}`));
    for (const r of shown) {
      const row = el("div", { class: r === nearest ? "row nearest" : "row" }, this.owner.swatch(r.s.name, r.s.role),
        el("span", { class: "name" }, r.s.name), el("b", {}, show(r.s.y[r.i])));
      if (r.s.low) row.append(el("span", { class: "range" }, `[${show(r.s.low[r.i])}, ${show(r.s.high[r.i])}]`));
      if (r.s.note) row.append(el("span", { class: "range note" }, r.s.note));
      this.tip.append(row);
    }
    if (rows.length > shown.length) this.tip.append(el("div", { class: "range" }, `and ${rows.length - shown.length} more`));
  }
}

// ---- bars

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
