"use strict";

// Makes elements, and sorts the tables that the templates have written. A heading of a column that sorts has data-sort, "number" or "text";
// each row is a tbody, whose first row has data-value in the cells that are not missing.

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

// What is missing stands last, whichever way the rest is sorted.
function sortRows(rows, value, descending) {
  rows.sort((first, second) => {
    const [a, b] = [value(first), value(second)];
    if (a === null || b === null) return (a === null) - (b === null);
    const order = typeof a === "string" ? (a < b ? -1 : a > b ? 1 : 0) : a - b;
    return descending ? -order : order;
  });
}

for (const table of document.querySelectorAll("table:has([data-sort])")) {
  const heads = [...table.tHead.rows[0].cells];
  for (const [place, head] of heads.entries()) {
    if (!head.dataset.sort) continue;
    const numbers = head.dataset.sort === "number";
    const button = make("button", { type: "button" }, ...head.childNodes);
    head.replaceChildren(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const descending = before === "none" ? numbers : before === "ascending";
      for (const other of heads) if (other.dataset.sort) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const bodies = [...table.tBodies];
      sortRows(bodies, (body) => {
        const { value } = body.rows[0].cells[place].dataset;
        return value === undefined ? null : numbers ? Number(value) : value;
      }, descending);
      table.append(...bodies);
    });
  }
}
