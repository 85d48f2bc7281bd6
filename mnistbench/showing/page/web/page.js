"use strict";

// Sorts, filters and opens. Names come from saved files, so text is only ever set as text, never as markup.

// ---- Numbers as text: the rules of mnistbench/core/units.py, and tested against it ----------------------------------

const units = {
  missing: "-",

  // Python rounds a tie to the even digit, toFixed away from zero. Enough digits show whether it is one. Intl.NumberFormat rounds
  // the shortest decimal of a number instead of its value: 9.895, which is below the tie, becomes 9.90.
  fixed(value, decimals) {
    const magnitude = Math.abs(value);
    const rounded = magnitude.toFixed(decimals);
    const exact = magnitude.toFixed(decimals + 30);
    const kept = exact.slice(0, exact.length - 30);
    const tie = /^50*$/.test(exact.slice(-30));
    const shown = tie && Number(kept.at(-1) === "." ? kept.at(-2) : kept.at(-1)) % 2 === 0 ? kept.replace(/\.$/, "") : rounded;
    return (value < 0 ? "-" : "") + shown;
  },

  grouped(text) {
    const [whole, part] = text.split(".");
    return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part === undefined ? "" : `.${part}`);
  },

  signed(text, signed) {
    if (!/[1-9]/.test(text)) return text.replace("-", "");
    return signed && !text.startsWith("-") ? `+${text}` : text;
  },

  duration: (nanoseconds, signed = false) => units.scaled(nanoseconds, [["ns", 1], ["us", 1e3], ["ms", 1e6], ["s", 1e9]], signed),

  percent(fraction, signed = false) {
    return `${units.signed(units.fixed(fraction * 100, 1), signed)} %`;
  },

  count(number) {
    return units.signed(units.grouped(units.fixed(number, Number.isInteger(number) ? 0 : 1)), false);
  },

  size: (bytes) => units.scaled(bytes, [["B", 1], ["KiB", 1024], ["MiB", 1024 ** 2], ["GiB", 1024 ** 3]], false),

  scaled(value, names, signed) {
    if (value === 0) return `0 ${names[0][0]}`;
    for (const [position, [name, one]] of names.entries()) {
      const text = units.significant(Math.abs(value) / one);
      if (position === names.length - 1 || Number(text.replaceAll(",", "")) < names[position + 1][1] / one) {
        return `${units.signed((value < 0 ? "-" : "") + text, signed)} ${name}`;
      }
    }
  },

  significant(value) {
    for (const decimals of [2, 1]) {
      const text = units.grouped(units.fixed(value, decimals));
      if (text.replace(/[,.]/g, "").length <= 3) return text;
    }
    return units.grouped(units.fixed(value, 0));
  },
};

const orMissing = (value, text) => (value === null ? units.missing : text(value));

// ---- Elements --------------------------------------------------------------------------------------------------------

const readData = (id) => JSON.parse(document.getElementById(id).textContent);

let radioGroups = 0;

function choice(legend, options, chosen, onchange) {
  const name = `choice${radioGroups++}`;
  return make("fieldset", {}, make("legend", {}, legend), ...options.map(([value, text]) =>
    make("label", {}, make("input", {
      type: "radio", name, value, checked: value === chosen, onchange: () => onchange(value),
    }), text)));
}

// Another state of the same elements, so that the focus stays where it is; what cannot be chosen says why.
function offer(fieldset, chosen, can, why) {
  for (const input of fieldset.querySelectorAll("input")) {
    input.checked = input.value === chosen;
    input.disabled = !can(input.value);
    input.parentElement.title = input.disabled ? why : "";
  }
}

function selection(label, values, onchange) {
  const select = make("select", { onchange: () => onchange(select.value) }, make("option", { value: "" }, "all"),
    ...values.map((value) => make("option", { value: `=${value}` }, value)));
  return make("label", {}, make("span", { class: "soft" }, label), select);
}

const distinct = (values) => [...new Set(values)].sort();

// ---- A table that is sorted and filtered ----------------------------------------------------------------------------

// columns: {title, number, value(row), text(row), sum(rows), share, detail(row), tone(row), first, ascending}, or {head(), element(row)} of a
// picture, which does not sort; rows: [name, ...], with what can be selected at other places.
// describe: {region, search: [label, example], selections: [[label, place in a row], ...], all, columns(), note(rows)}, and of a picture
// above the table {picture, mark(rows)}: mark gets the rows that match the search, null without one.
function filteredTable(container, rows, describe, controls) {
  const selected = describe.selections.map(() => "");
  let sought = "";
  let columns = [];
  let sorted = { title: "", descending: true };

  const head = make("thead");
  const body = make("tbody");
  const foot = make("tfoot");
  const status = make("p", { class: "soft", role: "status" });
  const [searched, example] = describe.search;
  const search = make("input", {
    type: "search", placeholder: example, oninput: () => { sought = search.value.trim().toLowerCase(); fill(); },
  });
  const matches = (row) => row[0].toLowerCase().includes(sought) &&
    describe.selections.every(([, place], position) => ["", `=${row[place]}`].includes(selected[position]));

  function fill() {
    const column = columns.find((one) => one.title === sorted.title) ?? columns.find((one) => one.first);
    const shown = rows().filter(matches);
    sortRows(shown, column.value, sorted.descending);
    body.replaceChildren(...shown.map((row) => make("tr", {}, ...columns.map((one) => cell(one, row)))));
    const sums = columns.map((one) => (one.sum ? one.sum(shown) : ""));
    sums[0] = `sum of ${shown.length} rows`;
    foot.replaceChildren(make("tr", {}, ...sums.map((text, place) =>
      make("td", { class: columns[place].number ? "number" : undefined }, text))));
    status.textContent = `${shown.length} of ${rows().length} rows${describe.note(shown)}`;
    describe.mark?.(sought === "" ? null : shown);
    for (const [place, th] of [...head.querySelectorAll("th")].entries()) {
      th.setAttribute("aria-sort", columns[place] === column ? (sorted.descending ? "descending" : "ascending") : "none");
    }
  }

  function cell(column, row) {
    if (column.element) return make("td", { class: "plot" }, column.element(row));
    const td = make("td", { class: column.number ? "number" : undefined }, column.text(row));
    if (column.detail) {
      td.className = "name";
      if (column.detail(row)) td.append(make("small", { title: column.detail(row) }, column.detail(row)));
    }
    if (column.tone) td.className = `verdict ${column.tone(row)}`;
    if (column.share && column.value(row) !== null) {
      td.classList.add("share");
      td.style.setProperty("--share", `${Math.max(0, Math.min(100, column.value(row) * 100))}%`);
    }
    return td;
  }

  function redraw() {
    columns = describe.columns();
    if (!columns.some((one) => one.title === sorted.title)) {
      const first = columns.find((one) => one.first);
      sorted = { title: first.title, descending: !first.ascending };
    }
    head.replaceChildren(make("tr", {}, ...columns.map((one) => make("th", { scope: "col", class: one.number ? "number" : undefined },
      one.head ? one.head() :
      make("button", {
        type: "button",
        onclick: () => {
          sorted = { title: one.title, descending: sorted.title === one.title ? !sorted.descending : one.number };
          fill();
        },
      }, one.title)))));
    fill();
  }

  container.replaceChildren(
    make("div", { class: "controls" }, ...controls(redraw)),
    make("div", { class: "controls" },
      make("label", {}, make("span", { class: "soft" }, searched), search),
      ...describe.selections.map(([label, place], position) =>
        selection(label, distinct(describe.all.map((row) => row[place])), (value) => { selected[position] = value; fill(); }))),
    status,
    describe.picture ?? "",
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": describe.region }, make("table", {}, head, body, foot)));
  redraw();
}

const operations = { region: "operations", search: ["operation", "aten::mm"], selections: [["phase", 1], ["module", 2]] };

const names = [
  { title: "operation", value: (row) => row[0], text: (row) => row[0], detail: (row) => row.detail },
  { title: "phase", value: (row) => row[1], text: (row) => row[1] },
  { title: "module", value: (row) => row[2], text: (row) => row[2] },
];

const total = (rows, value) => rows.reduce((sum, row) => sum + (value(row) ?? 0), 0);

function number(title, value, text, more = {}) {
  return { title, number: true, value, text: (row) => orMissing(value(row), text), ...more };
}

function time(title, value, more = {}) {
  return number(title, value, units.duration, { sum: (rows) => units.duration(total(rows, value)), ...more });
}

function share(value, whole) {
  const fraction = (row) => (value(row) === null || !whole ? null : value(row) / whole);
  return number("share", fraction, units.percent,
    { share: true, sum: (rows) => (whole ? units.percent(total(rows, value) / whole) : units.missing) });
}

// ---- Operations of a case ----------------------------------------------------------------------------------------------

function showOperations(container) {
  const data = readData(container.dataset.source);
  const tables = data.tables.map(({ temperature, view, rows }) => ({
    temperature,
    view,
    rows: rows.map(([key, calls, self, spread, whole, device, memory]) => {
      const [operation, phase, module, detail] = data.operations[key];
      return Object.assign([operation, phase, module], { key, detail, calls, self, spread, whole, device, memory });
    }),
  }));
  const table = (temperature, view) => tables.find((one) => one.temperature === temperature && one.view === view);
  const views = ["host", "device", "functions"].filter((view) => tables.some((one) => one.view === view));
  const coldViews = views.filter((view) => table("cold", view));
  const state = { view: views.at(-1), time: "self" };
  const has = (temperature) => table(temperature, state.view) !== undefined;
  // A view may lack what was chosen in the other one.
  const settle = () => { if (!has(state.temperature)) state.temperature = ["warm", "cold"].find(has); };
  settle();

  const rows = () => table(state.temperature, state.view).rows;
  const hostTime = (row) => (state.time === "self" ? row.self : row.whole);

  function columns() {
    const hostTitle = `${state.time} CPU`;
    const all = rows();
    const self = state.time === "self";
    const device = state.view === "device";
    const functions = state.view === "functions";
    const whole = total(all, (row) => row.self);
    return [
      ...names,
      number("calls", (row) => row.calls, units.count),
      ...(device ? [
        time("self device", (row) => row.device, { first: true }),
        share((row) => row.device, total(all, (row) => row.device)),
      ] : []),
      time(hostTitle, hostTime, { first: !device, ...(self ? {} : { sum: undefined }) }),
      ...(device ? [] : [{ ...share(hostTime, whole), ...(self ? {} : { sum: undefined }) }]),
      ...(state.temperature === "warm" ? [number(device ? "IQR of device" : "IQR of self", (row) => row.spread, units.duration)] : []),
      time("per call", (row) => (row.calls ? (device ? row.device : hostTime(row)) / row.calls : null), { sum: undefined }),
      ...(functions ? [] : [
        number("memory", (row) => row.memory, units.size, { sum: (some) => units.size(total(some, (row) => row.memory)) }),
      ]),
    ];
  }

  const uneven = () => (state.view === "functions" ? "; cProfile slows Python down unevenly" : "");
  const note = () => (state.time === "total"
    ? "; the total of an operation includes the operations that it calls, so totals do not add up"
    : "; self time excludes the operations that an operation calls, and includes the profiler's overhead") + uneven();

  filteredTable(container, rows, { ...operations, columns, note, all: tables.flatMap((one) => one.rows) }, (redraw) => {
    const change = (name) => (value) => {
      state[name] = value;
      settle();
      update();
      redraw();
    };
    const calls = choice("calls", [["warm", "warm"], ["cold", "cold"]], state.temperature, change("temperature"));
    const offered = views.includes("functions") ? ["host", "device", "functions"] : ["host", "device"];
    const view = choice("view", offered.map((name) => [name, name]), state.view, change("view"));
    const time = choice("time", [["self", "self"], ["total", "total"]], state.time, change("time"));
    function update() {
      const elsewhere = coldViews.length && !coldViews.includes(state.view);
      offer(calls, state.temperature, has, elsewhere ? `first calls are recorded on the ${coldViews[0]} only` : "");
      offer(view, state.view, (one) => views.includes(one), "");
    }
    update();
    return [calls, view, time];
  });
}

// ---- Operations of a case of a gate, base and head side by side -------------------------------------------------------

const sideBySide = (base, head, text) => [...new Set([base, head].map((value) => orMissing(value, text)))].join(" -> ");

const comparedCalls = {
  title: "calls", number: true, value: (row) => (row.headCalls ?? 0) - (row.baseCalls ?? 0),
  text: (row) => sideBySide(row.baseCalls, row.headCalls, units.count),
};

function showComparedOperations(container) {
  const namesOf = readData("operation-names");
  const all = readData(container.dataset.source).map(([position, baseCalls, headCalls, base, head, share, change, low, high, effect,
    verdict, tone, grid, path, x]) => {
    const [operation, phase, module, detail] = namesOf[position];
    return Object.assign([operation, phase, module],
      { detail, baseCalls, headCalls, base, head, share, change, low, high, effect, verdict, tone, grid, path, x });
  });
  const signedPercent = (value) => units.percent(value, true);
  const axis = document.getElementById("operations-axis").content.firstElementChild;

  // What the base does not have is new: it has no change as a share, and sorts as the largest.
  const change = {
    title: "change", number: true, value: (row) => row.change ?? Infinity,
    text: (row) => (row.change === null ? "new" : signedPercent(row.change)),
  };
  const plot = { head: () => axis.cloneNode(true), value: change.value, element: forestRow };
  const columns = [
    ...names,
    comparedCalls,
    time("base", (row) => row.base),
    time("head", (row) => row.head),
    number("share", (row) => row.share, units.percent, { share: true }),
    change,
    plot,
    number("of the case", (row) => row.effect, signedPercent, { first: true }),
    { title: "verdict", value: (row) => row.verdict, text: (row) => row.verdict, tone: (row) => row.tone },
  ];
  const note = () => "; self times of profiled iterations, base and head in turn";
  filteredTable(container, () => all, { ...operations, columns: () => columns, note, all }, () => []);
}

// The row of a forest plot, whose positions Python has computed.
function forestRow({ low, high, tone, grid, path, x }) {
  const svg = document.getElementById("operations-row").content.firstElementChild.cloneNode(true);
  if (tone) svg.classList.add(tone);
  svg.querySelector("use").setAttribute("href", `#operations${grid}`);
  svg.querySelector("path").setAttribute("d", path);
  svg.querySelector("circle").setAttribute("cx", x);
  if (high === null) return svg;
  const interval = `${units.percent(low, true)} to ${units.percent(high, true)}`;
  return make("div", { title: interval }, make("span", { class: "hidden" }, interval), svg);
}

// ---- Functions of a case of a gate, base and head side by side --------------------------------------------------------

function showFunctions(container) {
  const paths = readPaths(readData(container.dataset.source), readData("function-names"));
  const all = comparedFunctions(paths);
  const [whole] = paths;
  const picture = icicle(paths);
  const growth = (title, base, head, more = {}) => number(title, (row) => row[head] - row[base],
    (value) => units.duration(value, true), more);
  const columns = [
    { title: "function", value: (row) => row[0], text: (row) => row[0], detail: () => "" },
    { title: "differs", value: (row) => row.change, text: (row) => row.change, detail: () => "" },
    comparedCalls,
    time("self base", (row) => row.baseSelf),
    time("self head", (row) => row.headSelf),
    growth("self change", "baseSelf", "headSelf", {
      // The cause first, also of what got faster.
      first: true, ascending: whole.total.head < whole.total.base,
      sum: (rows) => units.duration(total(rows, (row) => row.headSelf - row.baseSelf), true),
    }),
    time("total base", (row) => row.baseTotal, { sum: undefined }),
    time("total head", (row) => row.headTotal, { sum: undefined }),
    growth("total change", "baseTotal", "headTotal"),
  ];
  const share = (time, side) => (whole.total[side] ? units.percent(time[side] / whole.total[side]) : units.missing);
  function note(rows) {
    if (rows.length === all.length) return "; a function's total includes the functions that it calls, so totals do not add up";
    const { count, time } = pathsThrough(paths, rows);
    return `; ${count} ${count === 1 ? "path has" : "paths have"} ${share(time, "base")} of the time of the base and ` +
      `${share(time, "head")} of the time of the head`;
  }
  filteredTable(container, () => all, {
    region: "functions", search: ["function", "Parser.read"], selections: [],
    columns: () => columns, note, all, picture: picture.element, mark: picture.mark,
  }, () => [
    choice("widths", [["head", "head"], ["base", "base"]], "head", (side) => picture.draw({ side })),
    choice("colors", [["self", "self"], ["total", "total"]], "self", (time) => picture.draw({ time })),
    make("button", { type: "button", onclick: () => picture.draw({ zoomed: paths[0] }) }, "whole case"),
  ]);
  picture.draw();
}

// ---- The page --------------------------------------------------------------------------------------------------------

for (const element of document.querySelectorAll(".needs-script")) element.hidden = false;

const theme = document.getElementById("theme");
const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (prefersDark.matches ? "dark" : "light")) === "dark";
const nameTheme = () => { theme.textContent = isDark() ? "light colors" : "dark colors"; };
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
prefersDark.addEventListener("change", nameTheme);
nameTheme();

const chosen = document.getElementById("run");
const showRun = () => {
  for (const run of document.querySelectorAll(".run")) run.hidden = run.id !== chosen.value;
};
if (chosen) {
  chosen.addEventListener("change", showRun);
  showRun();
}

function openCase(row, open) {
  const panel = row.nextElementSibling;
  panel.hidden = !open;
  row.querySelector(".open").setAttribute("aria-expanded", open);
  if (!open) return;
  for (const part of panel.querySelectorAll("[data-source]")) {
    if (part.hasChildNodes()) continue;
    if (part.matches(".functions")) showFunctions(part);
    else if (part.matches(".compared")) showComparedOperations(part);
    else showOperations(part);
  }
}

for (const row of document.querySelectorAll(".case")) {
  row.addEventListener("click", (event) => {
    const marked = window.getSelection();
    const copies = marked.type === "Range" && marked.containsNode(row, true); // somebody copies a number of this row
    if (copies && !row.querySelector(".open").contains(event.target)) return;
    openCase(row, row.nextElementSibling.hidden);
  });
}

// A link to a case opens it, also if it is filtered out.
function openTarget() {
  const row = document.getElementById(window.location.hash.slice(1));
  if (!row?.classList.contains("case")) return;
  row.parentElement.hidden = false;
  openCase(row, true);
  row.scrollIntoView();
}
window.addEventListener("hashchange", openTarget);
for (const link of document.querySelectorAll("a[href^='#']")) {
  // The address does not change if the link is used again.
  link.addEventListener("click", () => { if (link.hash === window.location.hash) openTarget(); });
}
openTarget();

for (const search of document.querySelectorAll("[data-filters]")) {
  const bodies = [...document.getElementById(search.dataset.filters).tBodies];
  const status = search.closest(".controls").querySelector("[role=status]");
  search.addEventListener("input", () => {
    const text = search.value.trim().toLowerCase();
    for (const body of bodies) body.hidden = !body.rows[0].cells[0].dataset.value.toLowerCase().includes(text);
    status.textContent = `${bodies.filter((body) => !body.hidden).length} of ${bodies.length}`;
  });
}

// One measure of the bars at a time.
for (const sizes of document.querySelectorAll(".measures")) {
  const figures = [...sizes.querySelectorAll(".bars")];
  const show = (measure) => { for (const figure of figures) figure.hidden = figure.dataset.measure !== measure; };
  const measures = figures.map((figure) => figure.dataset.measure);
  for (const figure of figures) figure.querySelector("figcaption").classList.add("hidden");
  sizes.before(make("div", { class: "controls" }, choice("bars show", measures.map((name) => [name, name]), measures[0], show)));
  show(measures[0]);
}
