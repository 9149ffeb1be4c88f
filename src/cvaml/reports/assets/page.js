"use strict";
// Builds the page from the JSON in it: sections, charts, sortable tables, configurations.

// The colour of a verdict; one that holds in part, or only under a condition, is neither green nor red.
function verdictClass(text) {
  const no = /does not hold|refuted|fails|uncalibrated/i.test(text), yes = /(?<!not )\bholds?\b|\bcalibrated/i.test(text);
  const open = /condition|partly|not enough|not shown|undecided|open/i.test(text);
  return open || no === yes ? "open" : no ? "no" : "yes";
}

// `code` in a text becomes <code>, **strong** becomes <strong>; everything else stays text.
function rich(text) {
  return String(text).split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part) => {
    if (part.length > 2 && part[0] === "`" && part.endsWith("`")) return el("code", {}, part.slice(1, -1));
    if (part.length > 4 && part.startsWith("**") && part.endsWith("**")) return el("strong", {}, part.slice(2, -2));
    return part;
  });
}

function cellNode(cell, column) {
  if (Array.isArray(cell)) {
    return el("td", { class: "number" }, show(cell[0]), el("span", { class: "range" }, ` [${show(cell[1])}, ${show(cell[2])}]`));
  }
  if (typeof cell === "number") return el("td", { class: "number" }, show(cell));
  if (cell === null) return el("td", { class: "number none" }, "–");
  if (/^verdict/i.test(column)) {
    return el("td", {}, el("span", { class: "verdict " + verdictClass(cell) }, ...rich(cell)));
  }
  return el("td", {}, ...rich(cell));
}

function sortKey(cell) { return Array.isArray(cell) ? cell[0] : cell; }

// Empty cells stay last in both directions; "C2" comes before "C10".
function compare(a, b, sign) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * String(a).localeCompare(String(b), "en", { numeric: true });
}

function tableNode(table) {
  const body = el("tbody", {}), heads = [];
  let order = table.rows, words = [];
  const fill = () => {
    const kept = words.length ? order.filter((row) => { const text = row.join(" ").toLowerCase(); return words.every((word) => text.includes(word)); }) : order;
    body.replaceChildren(...kept.map((row) => el("tr", {}, ...row.map((cell, i) => cellNode(cell, table.columns[i])))));
  };
  table.columns.forEach((column, index) => {
    const number = table.rows.some((row) => typeof sortKey(row[index]) === "number");
    const button = el("button", { type: "button" }, column);
    const head = el("th", { scope: "col", "aria-sort": "none", class: number ? "number" : "" }, button);
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const direction = before === "none" ? (number ? "descending" : "ascending") : before === "ascending" ? "descending" : "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", direction);
      const sign = direction === "ascending" ? 1 : -1;
      order = [...table.rows].sort((a, b) => compare(sortKey(a[index]), sortKey(b[index]), sign));
      fill();
    });
    heads.push(head);
  });
  fill();
  const node = el("div", { class: "card", id: table.key }, el("h3", {}, table.title), el("p", { class: "caption" }, ...rich(table.caption)));
  if (table.rows.length > 12) {
    const search = el("input", { type: "search", placeholder: "Filter rows, for instance: cvaml nmse", "aria-label": "Filter rows of " + table.title });
    search.addEventListener("input", () => { words = search.value.toLowerCase().split(/\s+/).filter(Boolean); fill(); });
    node.append(search);
  }
  node.append(
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": table.title },
      el("table", {}, el("thead", {}, el("tr", {}, ...heads)), body)));
  return node;
}

function settingsNode(item) {
  return el("details", { class: "card", id: item.key }, el("summary", {}, el("span", { class: "name" }, item.title), el("span", { class: "caption" }, item.caption)),
    el("pre", { tabindex: 0 }, JSON.stringify(item.values, null, 1)));
}

function main() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const content = document.getElementById("content"), nav = document.getElementById("contents");
  const charts = new Map();
  for (const section of data.sections) {
    nav.append(el("a", { href: "#" + section.key }, section.title));
    const node = el("section", { id: section.key }, el("h2", {}, section.title));
    if (section.lead) node.append(el("p", { class: "lead" }, ...rich(section.lead)));
    if (section.paper) node.append(el("p", { class: "lead" }, "In the paper's layout: ", ...fileLinks(section.paper), "."));
    for (const item of section.items) {
      if (item.item === "chart") {
        const view = new ChartView(item, data.looks);
        charts.set(view.node, view);
        node.append(view.node);
      } else node.append(item.item === "table" ? tableNode(item) : settingsNode(item));
    }
    content.append(node);
  }
  // A chart is drawn when it comes near the screen, and again when its width changes.
  const widths = new Map();
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting && !charts.get(entry.target).drawn) charts.get(entry.target).draw();
  }, { rootMargin: "300px" });
  const resized = new ResizeObserver((entries) => {
    for (const entry of entries) {
      const view = charts.get(entry.target), width = entry.contentRect.width;
      if (view.drawn && widths.get(view) !== undefined && Math.abs(widths.get(view) - width) > 1) view.draw();
      widths.set(view, width);
    }
  });
  for (const node of charts.keys()) { near.observe(node); resized.observe(node); }
  addEventListener("beforeprint", () => charts.forEach((view) => view.drawn || view.draw()));
  document.documentElement.dataset.ready = "yes";
}

main();
