// A table of many rows with a search box: `window.FINDER` holds columns and rows, `#finder` is where it goes.
(() => {
  const place = document.getElementById("finder");
  const { columns, rows } = window.FINDER || {};
  if (!place || !rows) return;
  const most = 200;
  const texts = rows.map((row) => row.join(" ").toLowerCase().replace(/\./g, ""));
  const number = columns.map((_, at) => typeof rows[0][at] === "number");
  const digits = columns.map((_, at) =>
    rows.reduce((most, row) => Math.max(most, number[at] ? (String(row[at]).split(".")[1] || "").length : 0), 0),
  );
  const text = (value, at) => (number[at] ? value.toFixed(digits[at]) : String(value));
  let order = { at: -1, down: true };

  const make = (tag, attributes = {}, text = "") => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.textContent = text;
    return element;
  };
  const box = make("input", { type: "search", placeholder: "Search", "aria-label": "Search in the table" });
  const said = make("p", { role: "status" });
  const table = make("table", { class: "rows" });
  const head = table.appendChild(make("thead")).appendChild(make("tr"));
  const body = table.appendChild(make("tbody"));
  columns.forEach((name, at) => {
    const cell = head.appendChild(make("th", { scope: "col", class: number[at] ? "number" : "" }));
    const button = cell.appendChild(make("button", { type: "button" }, name));
    button.addEventListener("click", () => {
      order = { at, down: order.at === at ? !order.down : number[at] };
      show();
    });
  });

  const show = () => {
    const words = box.value.toLowerCase().replace(/\./g, "").split(/\s+/).filter(Boolean);
    let found = rows.filter((_, at) => words.every((word) => texts[at].includes(word)));
    if (order.at >= 0) {
      const sign = order.down ? -1 : 1;
      const compare = (a, b) => (number[order.at] ? a - b : String(a).localeCompare(String(b)));
      found = found.slice().sort((a, b) => sign * compare(a[order.at], b[order.at]));
    }
    [...head.children].forEach((cell, at) => {
      if (at === order.at) cell.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    body.replaceChildren(
      ...found.slice(0, most).map((row) => {
        const line = make("tr");
        row.forEach((value, at) => line.append(make("td", { class: number[at] ? "number" : "" }, text(value, at))));
        return line;
      }),
    );
    const shown = found.length > most ? `, the first ${most} shown` : "";
    said.textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows${shown}`;
  };
  box.addEventListener("input", show);
  const frame = make("div", { class: "frame", tabindex: "0" });
  frame.append(table);
  place.append(box, said, frame);
  show();
})();
