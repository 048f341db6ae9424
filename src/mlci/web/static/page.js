// What the server renders already works; this only spares the reloading.
"use strict";

const byId = (id) => document.getElementById(id);
const form = byId("case");
let running = null, pause;

// Ask the server for the page that the form describes and take over the parts that changed; what is typed meanwhile stays.
async function refresh(url, submitter, tried) {
  clearTimeout(pause); // what was typed before this would undo it
  const asked = { codes: byId("codes").value, q: byId("q").value };
  running?.abort();
  running = new AbortController();
  let page, response;
  try {
    response = await fetch(url, { signal: running.signal });
    page = new DOMParser().parseFromString(await response.text(), "text/html");
  } catch (error) {
    if (error.name !== "AbortError") byId("said").textContent = "The server does not answer; is mlci serve still running?";
    byId("said").classList.toggle("hidden", error.name === "AbortError");
    return;
  }
  if (!page.getElementById("result")) return location.assign(url); // an answer of another kind, such as a refusal
  byId("said").classList.add("hidden");
  const focused = document.activeElement.id, box = byId("plus");
  for (const id of ["found", "result"]) byId(id).replaceWith(page.getElementById(id));
  if (box && box.value !== tried) byId("plus")?.replaceWith(box);
  if (submitter) {
    for (const id in asked) if (byId(id).value === asked[id]) byId(id).value = page.getElementById(id).value;
  }
  if (focused && document.activeElement.id !== focused) (byId(focused) ?? byId("codes")).focus();
  byId("said").textContent = ["no-score", "percentile", "score", "verdict"].map((id) => byId(id)?.textContent).filter(Boolean).join(" ");
  const address = new URL(response.url);
  address.searchParams.delete("q");
  for (const [name, value] of [...address.searchParams]) if (!value) address.searchParams.delete(name, value);
  history.replaceState(null, "", address.pathname + address.search);
}

// What stands in the box of "what if" counts once it is tried, not while somebody still types there.
function ask(submitter) {
  const fields = new URLSearchParams(new FormData(form, submitter));
  if (!submitter) {
    fields.delete("plus");
    for (const added of document.querySelectorAll("[name=plus]:checked")) fields.append("plus", added.value);
  }
  return refresh("/?" + fields, submitter, submitter && byId("plus")?.value);
}

if (form) {
  for (const id of ["codes", "q"]) {
    byId(id).addEventListener("input", () => {
      clearTimeout(pause);
      pause = setTimeout(ask, 100);
    });
  }
  document.addEventListener("change", (event) => {
    if (event.target.form === form && event.target.matches("[type=checkbox], select")) ask();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask(event.submitter);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("#undo, #keep, #result .empty a, #result a.offer");
    if (!link) return;
    event.preventDefault();
    refresh(link.href, link);
  });
  // Arrow keys walk from the search field through what it found.
  document.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !(event.target.id === "q" || event.target.closest("#found"))) return;
    const stops = [byId("q"), ...document.querySelectorAll("#found [name=pick]")];
    const at = stops.indexOf(event.target.closest("li")?.querySelector("[name=pick]") ?? event.target);
    event.preventDefault();
    stops[Math.min(Math.max(at + step, 0), stops.length - 1)].focus();
  });
}

// A file that the server would refuse is not sent at all; one that is dropped or chosen is sent at once.
byId("upload")?.addEventListener("submit", (event) => {
  const [file] = byId("file").files;
  const limit = Number(event.target.dataset.limit);
  if (!file || file.size <= limit) return;
  event.preventDefault();
  byId("too-large").textContent = `${file.name} has ${file.size.toLocaleString("en")} bytes; ${limit.toLocaleString("en")} are allowed. mlci score takes files of any size.`;
  byId("too-large").hidden = false;
});

// Scores are kept while their page is open, and no longer.
function hold(job) {
  if (!job || job.querySelector("[role=alert]")) return;
  const tell = (what) => navigator.sendBeacon(`/files/${job.dataset.token}/${what}`);
  setInterval(() => tell("keep"), 10_000); // before another tab of it that is closed could end it
  addEventListener("pagehide", () => tell(`leave?load=${job.dataset.load}`));
  addEventListener("pageshow", (event) => { // back from the browser's memory: the page was left, and may be too late
    if (event.persisted) location.reload();
  });
}

async function watch() {
  if (!byId("job")?.dataset.waiting) {
    hold(byId("job"));
    return sortable();
  }
  await new Promise((later) => setTimeout(later, 400));
  let page;
  try {
    page = new DOMParser().parseFromString(await (await fetch(location.href)).text(), "text/html");
  } catch {
    return watch(); // no answer this time
  }
  if (!page.getElementById("job")) return location.reload();
  byId("job").replaceWith(page.getElementById("job"));
  document.title = page.title;
  watch();
}

function sortable() {
  for (const head of document.querySelectorAll(".sortable th")) {
    head.firstElementChild.addEventListener("click", () => {
      const down = head.ariaSort === "descending" ? 1 : -1;
      for (const other of head.parentElement.children) other.ariaSort = null;
      head.ariaSort = down < 0 ? "descending" : "ascending";
      const body = head.closest("table").tBodies[0];
      const value = (row) => row.cells[head.cellIndex].dataset.value;
      const order = (a, b) => down * value(a).localeCompare(value(b), "en", { numeric: true });
      const numeric = (a, b) => down * (value(a) - value(b));
      const rows = [...body.rows].filter((row) => value(row));
      const without = [...body.rows].filter((row) => !value(row)); // no score: last, whichever way
      body.append(...rows.sort(rows.every((row) => isFinite(value(row))) ? numeric : order), ...without);
    });
  }
}

watch();
