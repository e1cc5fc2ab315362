// The index of runs: filter by state or text.
const runs = [...document.querySelectorAll(".run")];
const only = new Set();
const show = () => {
  const query = byId("search").value.toLowerCase();
  let shown = 0;
  for (const run of runs) {
    const matches = (!only.size || only.has(run.dataset.state)) && run.textContent.toLowerCase().includes(query);
    run.hidden = !matches;
    shown += matches;
  }
  byId("none").hidden = shown > 0;
};
for (const button of document.querySelectorAll("button[data-state]"))
  button.addEventListener("click", () => {
    const state = button.dataset.state;
    if (!only.delete(state)) only.add(state);
    button.setAttribute("aria-pressed", String(only.has(state)));
    show();
  });
byId("search").addEventListener("input", show);
