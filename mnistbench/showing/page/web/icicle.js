"use strict";

// Draws the call paths of a case on both sides: the case on top, below each path those that continue it. mnistbench/gate/report/page/icicles.py
// says why widths and colors are what they are.

// Narrower boxes are not drawn, have no gap beside them, have no text.
const SEEN_PX = 0.5;
const APART_PX = 4;
const TEXT_PX = 36;

// Width of a letter, roughly.
const LETTER_PX = 7;

// The least change that has the full color, as a share of the case's time: noise is pale.
const FULL_COLOR = 0.02;

const EXPLANATION = "A box is as wide as its path takes on the chosen side, with all that it calls; a path that this side lacks, as on the " +
  "other one. Click or Enter zooms in, Backspace out by one call, Escape out to the whole case; arrow keys move.";

// ---- Paths --------------------------------------------------------------------------------------------------------------

const otherSide = { base: "head", head: "base" };

// data: columns of numbers, a path after the one that it continues; functions: [name, how it differs, whether it differs itself].
function readPaths(data, functions) {
  const open = []; // the path of each depth that the next one can continue
  const paths = data.depths.map((depth, position) => {
    const [name, change, differsItself] = functions[data.functions[position]];
    const self = { base: data.base_self[position] * data.unit_ns, head: data.head_self[position] * data.unit_ns };
    const calls = { base: data.base_calls[position], head: data.head_calls[position] };
    const parent = depth ? open[depth - 1] : null;
    const path = { name, change, differsItself, depth, parent, calls, self, total: { ...self }, children: [] };
    parent?.children.push(path);
    open[depth] = path;
    return path;
  });
  for (const path of paths.toReversed()) {
    for (const side of ["base", "head"]) if (path.parent) path.parent.total[side] += path.total[side];
    path.status = !isOn(path, "base") ? "new" : !isOn(path, "head") ? "gone" : "";
  }
  return paths;
}

const isOn = (path, side) => path.calls[side] > 0;

function* callers(path) {
  for (let caller = path.parent; caller; caller = caller.parent) yield caller;
}

const isBelow = (path, matches) => [...callers(path)].some(matches);

// A row for each function, as filteredTable wants them. The total of a function that calls itself has a path once.
function comparedFunctions(paths) {
  const rows = new Map();
  for (const path of paths) {
    if (!rows.has(path.name)) {
      rows.set(path.name, Object.assign([path.name], {
        change: path.change, baseCalls: 0, headCalls: 0, baseSelf: 0, headSelf: 0, baseTotal: 0, headTotal: 0,
      }));
    }
    const row = rows.get(path.name);
    const isOutermost = !isBelow(path, (caller) => caller.name === path.name);
    for (const side of ["base", "head"]) {
      row[`${side}Calls`] += path.calls[side];
      row[`${side}Self`] += path.self[side];
      if (isOutermost) row[`${side}Total`] += path.total[side];
    }
  }
  return [...rows.values()];
}

// How many paths end in a function of the rows, and their time with what they call.
function pathsThrough(paths, rows) {
  const names = new Set(rows.map((row) => row[0]));
  const matching = paths.filter((path) => names.has(path.name));
  const time = { base: 0, head: 0 };
  for (const path of matching) {
    if (isBelow(path, (caller) => names.has(caller.name))) continue;
    for (const side of ["base", "head"]) time[side] += path.total[side];
  }
  return { count: matching.length, time };
}

// ---- The picture --------------------------------------------------------------------------------------------------------

// Returns {element, draw(changes of the state), mark(rows)}. The element must be in the page when it is drawn, which needs its width.
function icicle(paths) {
  const [whole] = paths;
  const boxes = new Map(); // path -> element, of those that are drawn
  // side: whose time is the width; time: whose change is the color; zoomed: the path that is as wide as the picture.
  const state = { side: "head", time: "self", zoomed: whole };
  let current = whole; // the one that the keyboard reaches
  let marked = null; // names that are searched for

  const tree = make("div", { class: "boxes", role: "tree", "aria-label": "call paths", onkeydown: onKey, onmouseleave: () => tell(current) });
  const legend = make("ul", { class: "key" });
  const detail = make("p", { class: "detail" });
  const element = make("figure", { class: "icicle" },
    make("figcaption", {}, legend, make("p", { class: "soft" }, EXPLANATION)), make("div", { class: "scroll" }, tree), detail);

  const growth = (path) => path[state.time].head - path[state.time].base;
  const fullColor = () => Math.max(
    1, FULL_COLOR * Math.max(whole.total.base, whole.total.head), ...paths.map((path) => Math.abs(growth(path))));

  // A path that the side lacks is as wide as in the other one.
  function setWidths() {
    for (const path of paths.toReversed()) {
      path.width = path.self[isOn(path, state.side) ? state.side : otherSide[state.side]];
      for (const child of path.children) path.width += child.width;
    }
  }

  function draw(changes = {}) {
    Object.assign(state, changes);
    setWidths();
    const full = fullColor();
    const pixels = tree.clientWidth;
    boxes.clear();
    for (const caller of [...callers(state.zoomed)].reverse()) add(caller, 0, 1, "caller");
    addAll(state.zoomed, 0, 1);
    if (!boxes.has(current)) current = state.zoomed;
    for (const [path, box] of boxes) box.style.setProperty("--heat", `${(100 * Math.abs(growth(path))) / full}%`);
    legend.replaceChildren(...samples(state.time, full));
    tree.replaceChildren(...boxes.values());
    tree.style.setProperty("--rows", 1 + Math.max(...[...boxes.keys()].map((path) => path.depth)));
    boxes.get(current).tabIndex = 0;
    markBoxes();
    tell(current);

    function addAll(path, left, width) {
      add(path, left, width);
      for (const child of path.children) {
        const part = path.width ? (width * child.width) / path.width : 0;
        if (part * pixels >= SEEN_PX) addAll(child, left, part);
        left += part;
      }
    }

    function add(path, left, width, kind = "") {
      const box = boxOf(path, width * pixels);
      if (kind) box.classList.add(kind);
      box.style.setProperty("left", `${100 * left}%`);
      box.style.setProperty("width", `${100 * width}%`);
      boxes.set(path, box);
    }
  }

  function boxOf(path, pixels) {
    const box = make("div", {
      class: ["box", growth(path) > 0 ? "grew" : "shrank", path.status].join(" "), role: "treeitem", tabindex: "-1",
      "aria-level": path.depth + 1, "aria-label": [...described(path)].join("; "),
      onclick: () => zoom(path), onmouseover: () => tell(path), onfocus: () => { reach(path); tell(path); },
    });
    if (path.differsItself) box.classList.add("differs");
    if (pixels < APART_PX) box.classList.add("narrow");
    if (pixels >= TEXT_PX) box.append(make("span", {}, boxText(path, pixels)));
    box.style.setProperty("--depth", path.depth);
    return box;
  }

  function tell(path) {
    const [name, ...rest] = described(path);
    detail.replaceChildren(make("strong", {}, name), make("br"), rest.join("; "));
  }

  function reach(path) {
    boxes.get(current)?.setAttribute("tabindex", -1);
    boxes.get(path).setAttribute("tabindex", 0);
    current = path;
  }

  function zoom(path) {
    current = path;
    draw({ zoomed: path });
    boxes.get(path).focus();
  }

  function goTo(path) {
    if (boxes.has(path)) boxes.get(path).focus();
  }

  function neighbour(step) {
    const row = [...boxes.keys()].filter((path) => path.depth === current.depth);
    return row[row.indexOf(current) + step];
  }

  function onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const actions = {
      ArrowUp: () => goTo(current.parent),
      ArrowDown: () => goTo(current.children.find((child) => boxes.has(child))),
      ArrowLeft: () => goTo(neighbour(-1)),
      ArrowRight: () => goTo(neighbour(+1)),
      Enter: () => zoom(current),
      " ": () => zoom(current),
      Backspace: () => zoom(state.zoomed.parent ?? whole),
      Escape: () => zoom(whole),
    };
    if (!Object.hasOwn(actions, event.key)) return;
    event.preventDefault();
    actions[event.key]();
  }

  function markBoxes() {
    tree.classList.toggle("searched", marked !== null);
    for (const [path, box] of boxes) box.classList.toggle("match", marked?.has(path.name) ?? false);
  }

  return {
    element,
    draw,
    mark(rows) {
      marked = rows && new Set(rows.map((row) => row[0]));
      markBoxes();
    },
  };
}

// Without its file or all of its module but the last part: pkg/parse.py:Parser.read, torch.nn.modules.linear.Linear.forward.
const shortName = (name) => /\.py:(.*)$/.exec(name)?.[1] ?? name.split(".").slice(-2).join(".");

// The short name if another one has no room.
function boxText(path, pixels) {
  const word = path.status && path.status !== path.parent.status ? `${path.status}: ` : "";
  const fits = (word.length + path.name.length) * LETTER_PX <= pixels;
  return word + (fits ? path.name : shortName(path.name));
}

function* described(path) {
  const time = ({ base, head }) => {
    const share = base && head !== base ? `, ${units.percent((head - base) / base, true)}` : "";
    return `${units.duration(base)} -> ${units.duration(head)} (${units.duration(head - base, true)}${share})`;
  };
  yield [path.name, path.change && `(${path.change})`, path.status && `[${path.status} path]`].filter(Boolean).join(" ");
  yield `calls ${sideBySide(path.calls.base, path.calls.head, units.count)}`;
  yield `total ${time(path.total)}`;
  yield `self ${time(path.self)}`;
}

// What the colors and signs mean, as items of a list.
function samples(time, full) {
  const sample = (kind, heat, ...text) => {
    const box = make("span", { class: `box ${kind}` });
    box.style.setProperty("--heat", heat);
    return make("li", {}, box, ...text);
  };
  return [
    sample("shrank", "100%", `${time} time shrank by ${units.duration(full)}`),
    sample("unchanged", "0%", "is the same"),
    sample("grew", "100%", `grew by ${units.duration(full)}`),
    sample("grew new", "50%", "new path"),
    sample("shrank gone", "50%", "path that is gone"),
    sample("unchanged differs", "0%", make("b", {}, "function whose code differs")),
  ];
}
