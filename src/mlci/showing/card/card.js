const boxes = [...document.querySelectorAll("#groups input")];
const chosen = [...document.querySelectorAll("form select")];
const rows = [...document.querySelectorAll("#meaning tbody tr")];
const total = document.querySelector("#total");
const verdict = document.querySelector("#verdict");
const cutoff = Number(total.dataset.cutoff);

function add() {
  const counted = [...boxes.filter((box) => box.checked), ...chosen];
  const sum = counted.reduce((total, each) => total + Number(each.value), 0);
  total.textContent = sum + (sum === 1 ? " point" : " points");
  verdict.textContent = sum >= cutoff ? "high severity" : "below the cutoff of " + cutoff;
  for (const row of rows) {
    const last = row.dataset.high === "" ? Infinity : Number(row.dataset.high);
    row.classList.toggle("here", Number(row.dataset.low) <= sum && sum <= last);
  }
}

document.querySelector("form").addEventListener("input", add);
document.querySelector("form").addEventListener("reset", () => setTimeout(add));
document.querySelector("#sum").hidden = false;
add();
