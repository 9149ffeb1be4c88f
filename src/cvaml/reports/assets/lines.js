"use strict";
// One panel of curves: axes, marks, and reading values with pointer or keyboard.

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
