"use strict";
// One chart: its controls and legend, and which of its series are visible.

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
