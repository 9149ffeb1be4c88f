"use strict";
// Elements, numbers, scales and paths. Text reaches the document through textContent only, so no name
// can become markup.

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
