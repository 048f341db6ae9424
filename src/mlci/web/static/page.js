// The pages work without this script; it only saves reloading them.
"use strict";

const byId = (id) => document.getElementById(id);
const form = byId("case");
let running = null, pause;

// Fetch the page that the form describes, and replace the parts that changed; text typed meanwhile stays.
async function refresh(url, submitter, tried) {
  clearTimeout(pause); // a pending request for older text would undo this one
  const asked = { codes: byId("codes").value, q: byId("q").value };
  running?.abort();
  running = new AbortController();
  let page, response;
  try {
    response = await fetch(url, { signal: running.signal });
    page = new DOMParser().parseFromString(await response.text(), "text/html");
  } catch (error) {
    if (error.name !== "AbortError") byId("said").textContent = "The server does not respond; is mlci serve still running?";
    byId("said").classList.toggle("hidden", error.name === "AbortError");
    return;
  }
  if (!page.getElementById("result")) return refused(page, response.status);
  byId("said").classList.add("hidden");
  const focused = document.activeElement.id, box = byId("plus");
  for (const id of ["codes-hint", "q-hint", "found", "result"]) byId(id).replaceWith(page.getElementById(id));
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

// Show an answer of another kind, such as a refusal, in place of the result: what was typed stays.
function refused(page, status) {
  const told = document.createElement("p");
  told.className = "problem";
  told.role = "alert";
  told.textContent = page.querySelector("[role=alert]")?.textContent
    ?? (status === 400 ? "The text is too long. To score many admissions, upload a file." : "There was an error; see the server's log.");
  byId("found").replaceChildren();
  byId("result").replaceChildren(told);
  byId("said").classList.add("hidden");
}

// Text in the what-if box counts only after "Try" is pressed, not while it is being typed.
function ask(submitter) {
  const fields = new URLSearchParams(new FormData(form, submitter));
  if (!submitter) {
    fields.delete("plus");
    for (const added of document.querySelectorAll("[name=plus]:checked")) fields.append("plus", added.value);
  }
  return refresh("/?" + fields, submitter, submitter && byId("plus")?.value);
}

if (form) {
  for (const id of ["codes", "q", "age"]) {
    byId(id)?.addEventListener("input", () => {
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

// Do not send a file that the server would reject for its size.
byId("upload")?.addEventListener("submit", (event) => {
  const [file] = byId("file").files;
  const limit = Number(event.target.dataset.limit);
  if (!file || file.size <= limit) return;
  event.preventDefault();
  byId("too-large").textContent = `${file.name} is too large: ${file.size.toLocaleString("en")} bytes; the limit is ${limit.toLocaleString("en")} bytes. Use mlci score for files of any size.`;
  byId("too-large").hidden = false;
});

// Keep the scores only while their page is open.
function hold(job) {
  if (!job || job.querySelector("[role=alert]")) return;
  const tell = (what) => navigator.sendBeacon(`/files/${job.dataset.token}/${what}`);
  setInterval(() => tell("keep"), 10_000); // closing another tab with the same page must not delete the scores
  addEventListener("pagehide", () => tell(`leave?load=${job.dataset.load}`));
  addEventListener("pageshow", (event) => { // restored from the browser's cache: the scores may have been deleted
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
    return watch(); // no response: try again
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
      const without = [...body.rows].filter((row) => !value(row)); // rows without a value stay last
      body.append(...rows.sort(rows.every((row) => isFinite(value(row))) ? numeric : order), ...without);
    });
  }
}

watch();
